"""No request makes the server fail: whatever address, method, parameters, headers, cookies and body it has.

``MADE_UP_REQUESTS`` says how many are sent (``./lab test`` sends few of them).
"""

from __future__ import annotations

import os
import sys
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests import figures
from tests.webapp.api.calls import SPEC, outcome_of
from tests.webapp.asker import Asker
from tests.webapp.made_up_requests import MadeUp, requests
from tests.webapp.pages_read import Offered, offered_by
from tests.webapp.populated import Populated
from tests.webapp.routes import Route, routes
from webapp.api.application import api

#: The few of every run of the tests are the same in each.
FEW = 300
HOW_MANY = int(os.environ.get("MADE_UP_REQUESTS", FEW))
#: A request takes a tenth of a second on a host with other work (seconds).
pytestmark = [pytest.mark.django_db, pytest.mark.timeout(max(600, HOW_MANY))]
ACTORS = ("ada", "ada", "ada", "max", "vera", "sly", "nobody", "viewer", "member", "admin", "foreign")


def offers_of(asker: Asker, lab: Populated, known: list[Route]) -> list[Offered]:
    """What the pages of an admin offer, each once."""
    found = {}
    for address in (route.address(lab.red) for route in known):
        answer = asker.ask("ada", "get", address)
        if "html" in answer.headers.get("content-type", ""):
            for one in offered_by(answer.text, address):
                found[one.method, one.address, tuple(name for name, _ in one.fields)] = one
    return list(found.values())


def operations() -> dict[str, list[str]]:
    """The parameters of each address of the API, as its OpenAPI document has them."""
    document = api.get_openapi_schema()
    return {
        path: [one["name"] for verb in verbs.values() for one in verb.get("parameters", ())]
        for path, verbs in document["paths"].items()
    }


def tell(statuses: Counter[int]) -> None:
    """How many were sent, and how many of them were answered by which status."""
    sys.stdout.write(f"{statuses.total()} requests: {dict(sorted(statuses.items()))}\n")
    sys.stdout.flush()


def test_no_request_makes_the_server_fail(lab: Populated) -> None:
    known, asker, statuses = routes(), Asker(lab), Counter[int]()
    offers = offers_of(asker, lab, known)
    assert len(known) > 90 and len(offers) > 100
    bodies = {
        "/api/v1/runs": SPEC,
        "/api/v1/outcomes": outcome_of({}),
        "/api/v1/experiments": {"name": "", "runs": [SPEC]},
    }
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
        status = asker.ask(
            made.actor,
            made.method,
            made.path,
            made.query,
            body=made.body,
            content_type=made.content_type,
            headers=made.headers,
        ).status
        statuses[status] += 1
        if statuses.total() % 1000 == 0:
            tell(statuses)
        if status >= 500:
            broken.setdefault(asker.cause, str(made))

    send()
    tell(statuses)
    figures.tell(requests=statuses.total(), answered=dict(sorted(statuses.items())))
    assert not broken, "\n\n".join(f"{made}\n{cause}" for cause, made in broken.items())
    assert statuses[200] > HOW_MANY / 20


def test_what_made_the_server_fail_once_is_refused(lab: Populated) -> None:
    asker = Asker(lab)
    form = b'--b\r\nContent-Disposition: form-data; name="status"\r\n\r\n\r\n--b--\r\n'
    multipart = "multipart/form-data; boundary=b"
    assert asker.ask("nobody", "post", "/hosts/join", body=form, content_type=multipart).status == 400
    twice = [("content-length", "99"), ("content-length", "99")]
    assert (
        asker.ask("ada", "post", "/t/red/vision/artifacts/1/profile", body=b"a=b", headers=twice).status
        == 400
    )
