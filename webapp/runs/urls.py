"""Addresses of experiments and runs, below the project."""

from django.urls import path

from webapp.runs import views

app_name = "runs"
urlpatterns = [
    path("experiments/", views.experiments, name="experiments"),
    path("experiments/new", views.new, name="new"),
    path("experiments/preview", views.preview, name="preview"),
    path("experiments/command", views.command, name="command"),
    path("experiments/presets/<int:preset>/remove", views.remove_preset, name="remove_preset"),
    path("experiments/<uuid:experiment>/", views.experiment, name="experiment"),
    path("experiments/<uuid:experiment>/grid", views.grid, name="grid"),
    path("experiments/<uuid:experiment>/events", views.events, name="events"),
    path("experiments/<uuid:experiment>/cancel", views.cancel_experiment, name="cancel_experiment"),
    path("experiments/<uuid:experiment>/trash", views.trash_experiment, name="trash_experiment"),
    path("runs/<uuid:run>/", views.run, name="run"),
    path("runs/<uuid:run>/plan", views.plan, name="plan"),
    path("runs/<uuid:run>/spec.json", views.spec, name="spec"),
    path("runs/<uuid:run>/trace.json", views.trace, name="trace"),
    path("runs/<uuid:run>/timeline", views.timeline, name="timeline"),
    path("runs/<uuid:run>/cancel", views.cancel_run, name="cancel_run"),
]
