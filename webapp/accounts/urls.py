"""Addresses of teams and of a project's home."""

from django.urls import path

from webapp.accounts import views

urlpatterns = [
    path("", views.home, name="home"),
    path("teams/new", views.create_team, name="create_team"),
    path("invitation/<str:token>/", views.invitation, name="invitation"),
    path("t/<slug:team>/", views.team, name="team"),
    path("t/<slug:team>/projects/new", views.create_project, name="create_project"),
    path("t/<slug:team>/trash/restore", views.restore, name="restore"),
    path("t/<slug:team>/trash/delete", views.delete, name="delete"),
    path("t/<slug:team>/<slug:project>/trash", views.trash_project, name="trash_project"),
    path("t/<slug:team>/<slug:project>/keep-runs", views.keep_runs, name="keep_runs"),
    path("t/<slug:team>/members/invite", views.invite, name="invite"),
    path(
        "t/<slug:team>/members/invitations/<int:invitation>/revoke",
        views.revoke_invitation,
        name="revoke_invitation",
    ),
    path("t/<slug:team>/members/<int:member>/role", views.set_role, name="set_role"),
    path("t/<slug:team>/members/<int:member>/remove", views.remove_member, name="remove_member"),
    path("t/<slug:team>/<slug:project>/", views.project, name="project"),
]
