"""Addresses of nightly suites, below the project."""

from django.urls import path

from webapp.nightly import views

app_name = "nightly"
urlpatterns = [
    path("", views.index, name="index"),
    path("recent", views.recent, name="recent"),
    path("<int:schedule>/", views.schedule, name="schedule"),
    path("<int:schedule>/run", views.run_now, name="run_now"),
    path("<int:schedule>/pause", views.pause, name="pause"),
    path("<int:schedule>/resume", views.resume, name="resume"),
    path("<int:schedule>/remove", views.remove, name="remove"),
]
