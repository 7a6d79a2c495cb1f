"""Addresses of the table of all runs, below the project."""

from django.urls import path

from webapp.history import views

app_name = "history"
urlpatterns = [
    path("", views.index, name="index"),
    path("comparison", views.comparison, name="comparison"),
    path("leaderboards", views.leaderboards, name="leaderboards"),
    path("leaderboards/<uuid:run>", views.leaderboard, name="leaderboard"),
    path("completion", views.completion, name="completion"),
    path("<uuid:run>/note", views.note, name="note"),
    path("<uuid:run>/comment", views.comment, name="comment"),
    path("<uuid:run>/comments/<int:comment>/remove", views.remove_comment, name="remove_comment"),
    path("tag", views.tag, name="tag"),
    path("trash", views.trash, name="trash"),
    path("views", views.keep_view, name="keep_view"),
    path("views/<int:view>/remove", views.remove_view, name="remove_view"),
]
