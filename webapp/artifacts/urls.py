"""Addresses of artifacts, below the project."""

from django.urls import path

from webapp.artifacts import views

app_name = "artifacts"
urlpatterns = [
    path("", views.index, name="index"),
    path("upload", views.upload, name="upload"),
    path("uploads", views.begin_upload, name="begin_upload"),
    path("uploads/<uuid:upload>", views.upload_part, name="upload_part"),
    path("zoo", views.add_zoo, name="add_zoo"),
    path("generated", views.add_generated, name="add_generated"),
    path("sample", views.add_sample, name="add_sample"),
    path("<int:artifact>/", views.artifact, name="artifact"),
    path("<int:artifact>/fit", views.fit_parts, name="fit_parts"),
    path("<int:artifact>/capture", views.capture, name="capture"),
    path("<int:artifact>/fate", views.fate, name="fate"),
    path("<int:artifact>/timeline", views.timeline, name="timeline"),
    path("<int:artifact>/download", views.download, name="download"),
    path("<int:artifact>/profile", views.profile, name="profile"),
    path("<int:artifact>/trash", views.trash, name="trash"),
]
