"""A list asks the database as often for many rows as for few, and zeal finds where one does not."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.webapp import cast
from webapp.accounts.models import Role
from webapp.accounts.services import create_project
from webapp.api.services import make_token
from webapp.artifacts.models import ArtifactQuerySet, Blob
from webapp.history.models import RunTag
from webapp.hosts.models import Host
from webapp.nightly.models import Change, Schedule
from webapp.reports.services import make as make_report
from webapp.runs.models import Experiment

pytestmark = pytest.mark.django_db
#: Below the project, or from the root; ``{}`` is the newest experiment.
LISTS = (
    *("", "experiments/", "experiments/{}/", "compare/", "compare/{}/", "all-runs/", "own-runs/"),
    *("all-runs/?q=order+by+step_time", "all-runs/?q=group+by+policy", "all-runs/leaderboards", "artifacts/"),
    *("hosts/", "reports/", "nightly/", "nightly/changes/", "nightly/channels/", "systems/", "tables/"),
    *("experiments/new", "palette", "advise/", "/t/ada/", "/t/ada/tokens/"),
    *("/api/v1/runs", "/api/v1/artifacts", "/api/v1/experiments", "/api/v1/experiments/{}", "/api/v1/hosts"),
    *("/api/v1/channels", "/api/v1/reports", "/api/v1/groups?query=group+by+policy"),
)
FEW, MANY = 8, 24
NOW = datetime(2026, 11, 30, tzinfo=UTC)


def fill(ada: cast.Place, count: int) -> Experiment:
    """As many of everything that lists have, and in the newest experiment as many tagged runs."""
    for number in range(count):
        name = f"{number} of {count}"
        fill_team(ada, name)
        model = cast.ready(ada.project, name=f"model {name}", created_by=ada.user)
        made = cast.experiment(ada.project, f"sweep {name}")
        cast.run(made, "vdnn", {"step_time": 1.0, "peak_memory": 2.0}, artifact=model)
    for number in range(count):
        run = cast.run(made, f"policy {number}", {"step_time": 1.0 + number}, artifact=model, seed=count)
        RunTag.objects.create(run=run, name="paper", by=ada.user)
    return made


def fill_team(ada: cast.Place, name: str) -> None:
    """A host, a project, a file here and one in the trash, a report, a change and who was told of it."""
    Host.objects.create(name=name)
    blob = Blob.objects.create(sha256=name, size=1)
    cast.ready(create_project(ada.project.team, name), blob=blob)
    cast.ready(ada.project, blob=blob, trashed_at=NOW)
    make_report(ada.project, ada.user, name)
    schedule = Schedule.objects.create(project=ada.project, suite="memory-gpt2", created_by=ada.user)
    levels = {"before": 1.0, "after": 2.0, "metric": "step_time", "suspects": "a..b"}
    change = Change.objects.create(schedule=schedule, title=name, slot=NOW, found_at=NOW, **levels)
    channel = ada.project.channels.create(name=name, kind="webhook", address="https://127.0.0.1/")
    channel.messages.create(at=NOW).changes.add(change)


@pytest.fixture
def ada() -> cast.Place:
    return cast.place("ada", Role.ADMIN)


def client_for(ada: cast.Place, address: str) -> Client:
    if not address.startswith("/api/"):
        return cast.signed_in(ada.user)
    secret = make_token(ada.project.team, ada.user, "lists", Role.ADMIN)[1]
    return Client(headers={"authorization": f"Bearer {secret}"})


def second_look(client: Client, ada: cast.Place, address: str, made: Experiment) -> list[str]:
    """The queries of a page that was shown before: what is kept of it is asked for once."""
    asked_for = address.format(made.pk)
    url = asked_for if address.startswith("/") else ada.url(asked_for)
    client.get(url)
    with CaptureQueriesContext(connection) as asked:
        answer = client.get(url)
    assert answer.status_code == 200, address
    return [query["sql"] for query in asked]


@pytest.mark.parametrize("address", LISTS)
def test_a_list_asks_as_often_for_many_rows_as_for_few(address: str, ada: cast.Place) -> None:
    client = client_for(ada, address)
    before, after = (second_look(client, ada, address, fill(ada, count)) for count in (FEW, MANY))
    assert len(after) <= len(before), "\n".join(sorted(after))


def test_a_list_that_asks_once_for_each_row_is_found(
    ada: cast.Place, n_plus_one: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who uploaded three artifacts is asked for row by row where the list's query leaves that out."""
    client, joined = client_for(ada, ""), ArtifactQuerySet.for_list
    for name in ("first", "second", "third"):
        cast.ready(ada.project, name=name, created_by=ada.user)
    client.get(ada.url("artifacts/"))
    assert n_plus_one == {}
    monkeypatch.setattr(ArtifactQuerySet, "for_list", lambda rows: joined(rows).select_related(None))
    client.get(ada.url("artifacts/"))
    assert list(n_plus_one) == ["N+1 detected on artifacts.Artifact.created_by"]
    n_plus_one.clear()
