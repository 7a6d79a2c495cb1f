"""Addresses of the search for the highest rate, below the project."""

from django.urls import path

from webapp.rates import views

app_name = "rates"
urlpatterns = [
    path("<uuid:experiment>/highest-rate", views.begin, name="begin"),
    path("<uuid:experiment>/highest-rate/stop", views.stop, name="stop"),
]
