"""Addresses of the catalog, below the project."""

from django.urls import path

from webapp.papers import views

app_name = "papers"
urlpatterns = [
    path("", views.systems, name="systems"),
    path("<slug:family>/<slug:policy>/", views.system, name="system"),
    path("<slug:family>/<slug:policy>/check", views.check, name="check"),
]
