"""Every address x method, whoever wrote it: a stranger to the team sees nothing, a viewer changes nothing.

The addresses come from the resolver, so a new page is covered without adding it here.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.urls.converters import IntConverter, UUIDConverter

from tests.webapp.advice.answers import QUESTION
from tests.webapp.cast import Cast, experiment_with, finished, ready, signed_in
from webapp.advice.services import ask
from webapp.api.services import make_token
from webapp.artifacts import uploads
from webapp.nightly.services import create_schedule

METHODS = ("get", "head", "post", "put", "patch", "delete", "options")
#: Not ours: the sign-in pages are for strangers, and the invitation and health pages have no team in their
#: address.
OUTSIDE = ("accounts/", "healthz", "admin/")


def patterns(resolver: Any, prefix: str = "", converters: dict[str, Any] | None = None) -> Iterator[Any]:
    """``(route, converters)`` of every leaf."""
    for entry in resolver.url_patterns:
        route = prefix + str(entry.pattern)
        known = {**(converters or {}), **getattr(entry.pattern, "converters", {})}
        if isinstance(entry, URLResolver):
            yield from patterns(entry, route, known)
        elif isinstance(entry, URLPattern):
            yield route, known


def team_routes() -> list[tuple[str, dict[str, Any]]]:
    return [(r, c) for r, c in patterns(get_resolver()) if "<slug:team>" in r or "/<team" in r]


def value_for(name: str, converter: Any, things: dict[str, Any]) -> str:
    """A value that exists, so that a door left open would really open."""
    if name in things:
        return str(things[name])
    if isinstance(converter, UUIDConverter):
        return str(uuid.UUID(int=7))
    return "1" if isinstance(converter, IntConverter) else "x"


def address(route: str, converters: dict[str, Any], things: dict[str, Any]) -> str:
    for name, converter in converters.items():
        kind = {
            "IntConverter": "int",
            "UUIDConverter": "uuid",
            "SlugConverter": "slug",
            "PathConverter": "path",
        }
        spelling = kind.get(type(converter).__name__, "str")
        for written in (f"<{spelling}:{name}>", f"<{name}>"):
            route = route.replace(written, value_for(name, converter, things))
    return "/" + route


@pytest.fixture
def things(cast: Cast) -> dict[str, Any]:
    """What stands in the red team's project, by the names that addresses use for it."""
    artifact = ready(cast.project)
    experiment = experiment_with(cast.project, artifact, succeeded=1)
    run = finished(experiment.runs.get())
    return {
        "team": "red",
        "project": "vision",
        "artifact": artifact.pk,
        "experiment": experiment.pk,
        "run": run.pk,
        "member": cast.red.memberships.get(user=cast.max).pk,
        "upload": uploads.begin(cast.project, cast.max, "large.csv", 9 * 2**20, "large").pk,
        "suite": "memory-gpt2",
        "schedule": create_schedule(cast.project, cast.ada, "memory-gpt2", 2, 0).pk,
        "advice": ask(cast.project, cast.max, artifact, QUESTION).pk,
        "token": make_token(cast.red, cast.ada, "gpu host", "member")[0].pk,
    }


def test_there_are_addresses_to_walk() -> None:
    routes = [route for route, _ in team_routes()]
    assert len(routes) > 25
    assert any(route.endswith("<uuid:run>/") for route in routes)


@pytest.mark.parametrize("method", METHODS)
def test_a_stranger_to_the_team_gets_404_from_every_address(
    cast: Cast, things: dict[str, Any], method: str
) -> None:
    """405 says only that the method is not known anywhere: it is the same for an address that
    does not exist.
    """
    sly = signed_in(cast.sly)
    for route, converters in team_routes():
        url = address(route, converters, things)
        status = getattr(sly, method)(url).status_code
        assert status in (404, 405), f"{method} {url} answered {status}"


@pytest.mark.parametrize("method", METHODS)
def test_who_is_not_signed_in_is_sent_to_sign_in(things: dict[str, Any], method: str) -> None:
    nobody = Client()
    for route, converters in team_routes():
        url = address(route, converters, things)
        answer = getattr(nobody, method)(url)
        to_login = answer.status_code == 302 and "/accounts/login/" in answer["Location"]
        assert to_login or answer.status_code in (401, 403, 404, 405), f"{method} {url}: {answer.status_code}"


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
def test_a_viewer_changes_nothing_anywhere(cast: Cast, things: dict[str, Any], method: str) -> None:
    vera = signed_in(cast.vera)
    for route, converters in team_routes():
        url = address(route, converters, things)
        status = getattr(vera, method)(url).status_code
        assert status in (403, 405), f"{method} {url} answered {status}"


def test_a_member_of_another_team_does_not_reach_things_through_a_project_of_their_own(
    cast: Cast, things: dict[str, Any]
) -> None:
    """The surprise: the address is Sly's own team and project, only the thing in it is the red team's."""
    sly, own = signed_in(cast.sly), {**things, "team": "blue", "project": "speech"}
    walked = 0
    for route, converters in team_routes():
        if not {
            "artifact",
            "experiment",
            "run",
            "member",
            "schedule",
            "token",
            "upload",
            "advice",
        }.intersection(converters):
            continue
        walked += 1
        url = address(route, converters, own)
        for method in ("get", "post"):
            status = getattr(sly, method)(url).status_code
            assert status in (404, 405), f"{method} {url} answered {status}"
    assert walked > 10


def test_every_page_opens_for_a_viewer(cast: Cast, things: dict[str, Any]) -> None:
    """No page breaks on what the cast has; those of things it has not say 404, those of admins 403."""
    vera = signed_in(cast.vera)
    for route, converters in team_routes():
        url = address(route, converters, things)
        status = vera.get(url).status_code
        assert status in (200, 302, 403, 404, 405), f"{url} answered {status}"
