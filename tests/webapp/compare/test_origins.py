"""A comparison says where its runs differ in what nobody asked for: code, torch and host."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.webapp import cast
from webapp.runs.models import Run, RunDocument

pytestmark = pytest.mark.django_db
SAID = "Not all made alike"


@pytest.fixture
def ada() -> cast.Place:
    return cast.place("ada")


@pytest.fixture
def client(ada: cast.Place) -> Client:
    return cast.signed_in(ada.user)


def make_runs(ada: cast.Place, *origins: tuple[str, str, str], mode: str = "measured") -> str:
    """An experiment with a run for each revision, torch and host; its comparison's address."""
    found, model = cast.experiment(ada.project), cast.ready(ada.project)
    for number, (revision, torch, host) in enumerate(origins):
        run = cast.run(found, f"policy {number}", {"step_time": 1.0}, artifact=model, mode=mode)
        told = {"revision": revision, "versions": {"torch": torch}, "host": {"name": host}}
        RunDocument.objects.create(run=run, outcome={"provenance": told})
    return ada.url(f"compare/{found.pk}/")


def text_of(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    return answer.content.decode()


def test_several_revisions_and_libraries_are_counted_and_what_is_the_same_is_not(
    ada: cast.Place, client: Client
) -> None:
    new, old = "a" * 40, "b" * 40
    page = text_of(
        client, make_runs(ada, (new, "2.5.1", "node-1"), (new, "2.4.0", "node-1"), (old, "2.5.1", "node-1"))
    )
    assert f"{SAID}, so a difference may come of that: revision {'a' * 12} in 2, {'b' * 12} in 1;" in page
    assert "torch 2.5.1 in 2, 2.4.0 in 1.</p>" in page and "host node-1" not in page


def test_another_host_counts_where_it_was_measured_and_not_where_it_was_simulated(
    ada: cast.Place, client: Client
) -> None:
    hosts = (("a" * 40, "2.5.1", "node-1"), ("a" * 40, "2.5.1", "node-2"))
    assert "host node-1 in 1, node-2 in 1." in text_of(client, make_runs(ada, *hosts))
    assert SAID not in text_of(client, make_runs(ada, *hosts, mode="simulated"))


def test_runs_that_tell_nothing_are_no_difference(ada: cast.Place, client: Client) -> None:
    address = make_runs(ada, ("a" * 40, "2.5.1", "node-1"), ("a" * 40, "2.5.1", "node-1"))
    cast.run(Run.objects.latest("queued_at").experiment, "untold", {"step_time": 2.0})
    assert SAID not in text_of(client, address)
