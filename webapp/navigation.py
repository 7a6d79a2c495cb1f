"""The menu, the switcher and the crumbs: what ``base.html`` shows around every page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

from webapp.accounts import invitations
from webapp.accounts.models import Project, Team, User
from webapp.accounts.services import may_make_teams
from webapp.outages import read_troubles

#: url name, label, and the url namespaces (or names) under which the entry counts as the current one.
MENU: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("project", "Home", ("project",)),
    ("advice:index", "What should I do?", ("advice",)),
    ("artifacts:index", "Artifacts", ("artifacts",)),
    ("runs:experiments", "Experiments", ("runs", "compare")),
    ("history:index", "All runs", ("history", "logged", "reports")),
    ("papers:systems", "Systems", ("papers",)),
    ("tables:index", "Tables", ("tables",)),
    ("nightly:index", "Nightly", ("nightly",)),
    ("hosts:index", "Hosts", ("hosts",)),
)


@dataclass(frozen=True)
class Entry:
    label: str
    url: str
    current: bool


def context(request: HttpRequest) -> Mapping[str, Any]:
    """Context processor: nothing for strangers, the switcher for members, the menu inside a project.

    Cells of tables are templates too, each with this: what asks the database does so where it is shown.
    """
    user = getattr(request, "user", None)
    if not isinstance(user, User):
        return _tell_invitation(request)
    project: Project | None = getattr(request, "project", None)
    team: Team | None = getattr(request, "team", None)
    return {
        "project": project,
        "team": team,
        "role": getattr(request, "role", None),
        "can_write": getattr(request, "role", "viewer") != "viewer",
        "may_make_teams": partial(may_make_teams, user),
        "troubles": read_troubles(),
        "menu": menu(request, project) if project else (),
        "switcher": Project.objects.visible_to(user).select_related("team").order_by("team__name", "name"),
    }


def _tell_invitation(request: HttpRequest) -> Mapping[str, Any]:
    """To a guest with an invitation: who invites into what."""
    session = getattr(request, "session", {})
    if invitations.SESSION_KEY not in session:
        return {}
    link = reverse("invitation", kwargs={"token": session[invitations.SESSION_KEY]})
    return {"invitation": invitations.remembered_invitation(request), "invitation_link": link}


def menu(request: HttpRequest, project: Project) -> tuple[Entry, ...]:
    match = request.resolver_match
    here = {*match.namespaces, match.url_name} if match else set()
    return tuple(
        Entry(label, project_url(project, name), bool(here.intersection(areas)))
        for name, label, areas in MENU
        if _exists(project, name)
    )


def _exists(project: Project, name: str) -> bool:
    try:
        project_url(project, name)
    except NoReverseMatch:
        return False
    return True


def project_url(project: Project, name: str, **more: Any) -> str:
    """The address of a page of ``project``: ``project_url(project, "runs:run", run=run.id)``."""
    return reverse(name, kwargs={"team": project.team.slug, "project": project.slug, **more})
