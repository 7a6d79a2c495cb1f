"""Addresses of hosts, below the project."""

from django.urls import path

from webapp.hosts import views

app_name = "hosts"
urlpatterns = [
    path("", views.index, name="index"),
    path("add", views.add, name="add"),
    path("<int:host>/revoke", views.revoke, name="revoke"),
    path("<int:host>/validate", views.validate, name="validate"),
    path("validation", views.validation, name="validation"),
]
