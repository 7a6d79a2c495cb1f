"""Addresses of logged runs, below the project."""

from django.urls import path

from webapp.logged import views

app_name = "logged"
urlpatterns = [
    path("", views.comparison, name="comparison"),
    path("<uuid:logged>", views.run, name="run"),
    path("<uuid:logged>/images/<int:image>", views.image, name="image"),
    path("<uuid:logged>/tables/<int:table>", views.table, name="table"),
]
