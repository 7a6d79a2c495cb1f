"""Addresses of the papers' tables, below the project."""

from django.urls import path

from webapp.papers import views

app_name = "tables"
urlpatterns = [
    path("", views.suites, name="index"),
    path("<slug:suite>/", views.suite, name="suite"),
    path("<slug:suite>/run", views.run_suite, name="run"),
]
