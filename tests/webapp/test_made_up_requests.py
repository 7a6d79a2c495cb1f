"""No request makes the server fail: whatever address, method, parameters, headers, cookies and body it has.

``MADE_UP_REQUESTS`` says how many are sent (``./lab test`` sends few of them).
"""

from __future__ import annotations

import os
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.signals import got_request_exception
from django.db import transaction
from hypothesis import HealthCheck, Phase, given, settings

from tests.webapp.api.test_api import SPEC, outcome_of
from tests.webapp.cast import signed_in
from tests.webapp.made_up_requests import MadeUp, requests
from tests.webapp.over_asgi import Application
from tests.webapp.pages_read import Offered, offered_by
from tests.webapp.populated import Populated, populated
from tests.webapp.routes import Route, routes
from webapp.api.application import api

pytestmark = pytest.mark.django_db
#: The few of every run of the tests are the same in each.
FEW = 300
HOW_MANY = int(os.environ.get("MADE_UP_REQUESTS", FEW))
CSRF = "c" * 32
ACTORS = ("ada", "ada", "ada", "max", "vera", "sly", "nobody", "viewer", "member", "foreign")


@pytest.fixture(autouse=True)
def files_of_its_own() -> None:
    """Those of the whole file of tests stay."""


@pytest.fixture(scope="module")
def lab(
    django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Populated]:
    with django_db_blocker.unblock(), populated(tmp_path_factory.mktemp("files")) as found:
        yield found


class Sender:
    """Sends what was made up, over ASGI as in production, and takes back what it changed."""

    def __init__(self, lab: Populated) -> None:
        people = {name: getattr(lab.cast, name) for name in ("ada", "max", "vera", "sly")}
        self.sessions = {name: signed_in(user).cookies["sessionid"].value for name, user in people.items()}
        self.secrets = lab.secrets
        self.application = Application()
        self.cause = ""
        got_request_exception.connect(self._note)

    def _note(self, **kwargs: Any) -> None:
        self.cause = traceback.format_exc(limit=-3)

    def send(self, made: MadeUp) -> int:
        """The status; what was raised stands in ``cause``."""
        self.cause = "no exception"
        with transaction.atomic():
            status = self.application.ask(
                made.method.upper(), made.path, made.query, list(self._headers(made)), made.body
            )
            transaction.set_rollback(True)
        return status

    def _headers(self, made: MadeUp) -> Iterator[tuple[str, str]]:
        """Who it is, unless the made-up headers say so, and what a form of ours sends along."""
        names = {name for name, _ in made.headers}
        if made.actor in self.secrets and "authorization" not in names:
            yield "authorization", f"Bearer {self.secrets[made.actor]}"
        if "cookie" not in names:
            session = self.sessions.get(made.actor)
            yield "cookie", f"csrftoken={CSRF}" + (f"; sessionid={session}" if session else "")
        if "x-csrftoken" not in names:
            yield "x-csrftoken", CSRF
        if "content-length" not in names:
            yield "content-length", str(len(made.body))
        yield "content-type", made.content_type
        yield from made.headers


def offers_of(lab: Populated, known: list[Route]) -> list[Offered]:
    """What the pages of an admin offer, each once."""
    reader, found = signed_in(lab.cast.ada), {}
    for route in known:
        if route.name in ("account_logout", "runs:events"):
            continue
        address = route.address(lab.red)
        answer = reader.get(address)
        if not answer.streaming and "html" in answer.headers.get("content-type", ""):
            for one in offered_by(answer.content.decode(), address):
                found[one.method, one.address, tuple(name for name, _ in one.fields)] = one
    return list(found.values())


def operations() -> dict[str, list[str]]:
    """The parameters of each address of the API, as its OpenAPI document has them."""
    document = api.get_openapi_schema()
    return {
        path: [one["name"] for verb in verbs.values() for one in verb.get("parameters", ())]
        for path, verbs in document["paths"].items()
    }


def test_no_request_makes_the_server_fail(lab: Populated) -> None:
    known = routes()
    offers = offers_of(lab, known)
    assert len(known) > 90 and len(offers) > 100
    bodies = {
        "/api/v1/runs": SPEC,
        "/api/v1/outcomes": outcome_of({}),
        "/api/v1/experiments": {"name": "", "runs": [SPEC]},
    }
    sender, statuses = Sender(lab), Counter[int]()
    broken: dict[str, str] = {}

    @settings(
        max_examples=HOW_MANY,
        derandomize=HOW_MANY <= FEW,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(requests(known, lab.red, offers, operations(), bodies, ACTORS))
    def send(made: MadeUp) -> None:
        status = sender.send(made)
        statuses[status] += 1
        if status >= 500:
            broken.setdefault(sender.cause, str(made))

    send()
    sys.stdout.write(f"{statuses.total()} requests: {dict(sorted(statuses.items()))}\n")
    assert not broken, "\n\n".join(f"{made}\n{cause}" for cause, made in broken.items())
    assert statuses[200] > HOW_MANY / 20
