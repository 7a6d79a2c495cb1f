"""The address that the palette asks, below the project."""

from django.urls import path

from webapp.palette import views

app_name = "palette"
urlpatterns = [path("", views.find, name="find")]
