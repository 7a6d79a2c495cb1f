"""Addresses of reports, below the project."""

from django.urls import path

from webapp.reports import views

app_name = "reports"
urlpatterns = [
    path("", views.index, name="index"),
    path("<int:report>/", views.report, name="report"),
    path("<int:report>/edit", views.edit, name="edit"),
    path("<int:report>/freeze", views.freeze, name="freeze"),
    path("<int:report>/trash", views.trash, name="trash"),
]
