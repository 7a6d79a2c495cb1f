"""Addresses that joined hosts call, and the one they join at; they belong to no team."""

from django.urls import path

from webapp.hosts import host_views

urlpatterns = [
    path("join", host_views.join, name="host_join"),
    path("hello", host_views.hello, name="host_hello"),
    path("files/<str:sha256>", host_views.file, name="host_file"),
]
