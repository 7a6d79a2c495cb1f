"""Addresses of the advisor, below the project."""

from django.urls import path

from webapp.advice import views

app_name = "advice"
urlpatterns = [
    path("", views.index, name="index"),
    path("<int:advice>/launch", views.launch, name="launch"),
    path("<int:advice>/again", views.again, name="again"),
]
