"""Addresses of comparisons, below the project."""

from django.urls import path

from webapp.compare import views

app_name = "compare"
urlpatterns = [
    path("", views.runs, name="runs"),
    path("<uuid:experiment>/", views.experiment, name="experiment"),
    path("<uuid:experiment>/pin", views.pin, name="pin"),
]
