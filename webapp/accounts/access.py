"""Who may see and do what: the one door through which every page of a team or a project is entered.

A stranger's project does not exist for them (404); a role that is too low is told so (403).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponseBase
from django_htmx.middleware import HtmxDetails

from webapp.accounts.models import Membership, Project, Role, Team, User
from webapp.accounts.roles import allows
from webapp.api.rate import TooOften
from webapp.api.tokens import TeamToken
from webapp.refusals import too_many

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


class TeamRequest(HttpRequest):
    """A request that has been let in: ``team`` is the user's own, ``role`` the user's role there."""

    user: User
    htmx: HtmxDetails
    team: Team
    role: str

    def may(self, role: str) -> bool:
        return allows(self.role, role)


class ProjectRequest(TeamRequest):
    project: Project


async def still_enters(request: TeamRequest) -> bool:
    """Whether who was let in still would be: asked by answers that go on for long."""
    member = Membership.objects.filter(team=request.team, user=request.user, user__is_active=True)
    return await member.aexists()


View = Callable[..., HttpResponseBase]


def membership(user: Any, team: str) -> Membership:
    """The user's membership in the team of that slug, or 404."""
    found = Membership.objects.select_related("team").filter(user=user, team__slug=team).first()
    if found is None:
        raise Http404("no such team")
    return found


def project_of(member: Membership, slug: str) -> Project:
    """A project of the member's team, or 404; one in the trash is gone."""
    found = Project.objects.filter(team=member.team, slug=slug, trashed_at=None).first()
    if found is None:
        raise Http404("no such project")
    found.team = member.team
    return found


def _door(entered: View, exports: bool) -> View:
    """Lets in who is signed in, and where a page ``exports`` tables a team's token that asks for one as a
    file; all others sign in first.
    """
    guarded = login_required(entered)

    @functools.wraps(entered)
    def door(request: HttpRequest, *args: Any, **where: Any) -> HttpResponseBase:
        try:
            request.by_token = _by_token(request) if exports else None  # type: ignore[attr-defined]
        except TooOften as held_back:
            return too_many(request, held_back.seconds)
        if request.by_token is None:  # type: ignore[attr-defined]
            return guarded(request, *args, **where)
        return _only_file(entered(request, *args, **where))

    return door


def _only_file(answer: HttpResponseBase) -> HttpResponseBase:
    """What a token may see of a page: a table as a file, and nothing else of it."""
    if not answer.has_header("Content-Disposition"):
        raise Http404("this is no table")
    return answer


def _by_token(request: HttpRequest) -> Membership | None:
    """What the team token of an export (``?export=csv`` from a terminal) stands for; never saved."""
    if request.method not in SAFE_METHODS or "export" not in request.GET:
        return None
    token = TeamToken()(request)
    return Membership(team=token.team, role=token.role) if token else None


def _enter(request: HttpRequest, team: str, read: str, write: str) -> Membership:
    """Puts team and role on the request; ``PermissionDenied`` names the role that is needed."""
    member: Membership = request.by_token or membership(request.user, team)  # type: ignore[attr-defined]
    if member.team.slug != team:
        raise Http404("no such team")
    need = read if request.method in SAFE_METHODS else write
    if not allows(member.role, need):
        raise PermissionDenied(f"this needs the role {need}; yours is {member.role}")
    request.team, request.role = member.team, member.role  # type: ignore[attr-defined]
    request.may = functools.partial(allows, member.role)  # type: ignore[attr-defined]
    return member


def in_team(
    read: str = Role.VIEWER, write: str = Role.ADMIN, *, exports: bool = False
) -> Callable[[View], View]:
    """For views at ``/t/<team>/...``: ``view(request: TeamRequest, ...)``. Changing a team takes an admin.

    A page that ``exports`` gives its tables as files to the team's tokens too.
    """

    def decorate(view: View) -> View:
        @functools.wraps(view)
        def enter_and_view(request: HttpRequest, team: str, **rest: Any) -> HttpResponseBase:
            _enter(request, team, read, write)
            return view(request, **rest)

        return _door(enter_and_view, exports)

    return decorate


def in_project(
    read: str = Role.VIEWER, write: str = Role.MEMBER, *, exports: bool = False
) -> Callable[[View], View]:
    """For views at ``/t/<team>/<project>/...``: ``view(request: ProjectRequest, ...)``.

    Safe methods need the role ``read``, all others ``write``; ``exports`` as in ``in_team``.
    """

    def decorate(view: View) -> View:
        @functools.wraps(view)
        def enter_and_view(request: HttpRequest, team: str, project: str, **rest: Any) -> HttpResponseBase:
            member = _enter(request, team, read, write)
            request.project = project_of(member, project)  # type: ignore[attr-defined]
            return view(request, **rest)

        return _door(enter_and_view, exports)

    return decorate
