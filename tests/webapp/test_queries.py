"""A list asks the database as often for many rows as for few."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.webapp import cast
from webapp.history.models import RunTag
from webapp.runs.models import Experiment

pytestmark = pytest.mark.django_db
#: Below the project; ``{}`` is the newest experiment.
LISTS = (
    *("", "experiments/", "experiments/{}/", "compare/", "compare/{}/", "all-runs/", "own-runs/"),
    *("all-runs/?q=order+by+step_time", "all-runs/?q=group+by+policy", "all-runs/leaderboards", "artifacts/"),
    *("hosts/", "reports/", "nightly/"),
)
FEW, MANY = 8, 24


def fill(ada: cast.Place, count: int) -> Experiment:
    """As many experiments, models and hosts, and in the newest of them as many tagged runs."""
    for number in range(count):
        model = cast.ready(ada.project, name=f"model {number} of {count}")
        made = cast.experiment(ada.project, f"sweep {number} of {count}")
        cast.run(made, "vdnn", {"step_time": 1.0, "peak_memory": 2.0}, artifact=model)
    for number in range(count):
        run = cast.run(made, f"policy {number}", {"step_time": 1.0 + number}, artifact=model, seed=count)
        RunTag.objects.create(run=run, name="paper", by=ada.user)
    return made


def second_look(client: Client, ada: cast.Place, address: str, made: Experiment) -> list[str]:
    """The queries of a page that was shown before: what is kept of it is asked for once."""
    client.get(ada.url(address.format(made.pk)))
    with CaptureQueriesContext(connection) as asked:
        answer = client.get(ada.url(address.format(made.pk)))
    assert answer.status_code == 200, address
    return [query["sql"] for query in asked]


@pytest.mark.parametrize("address", LISTS)
def test_a_list_asks_as_often_for_many_rows_as_for_few(address: str) -> None:
    ada = cast.place("ada")
    client = cast.signed_in(ada.user)
    before, after = (second_look(client, ada, address, fill(ada, count)) for count in (FEW, MANY))
    assert len(after) <= len(before), "\n".join(sorted(after))
