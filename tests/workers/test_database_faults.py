"""The network between workers and database fails in mid-transaction: no run is lost and none is doubled.

``LAB_DATABASE_FAULTS=200`` for many.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime

import pytest
from django.db import connection
from django.db.models import Sum

from tests.figures import tell
from tests.proxy import Proxy
from tests.workers.crew import Crew, all_ended, project, queue_runs, until
from webapp.runs import lifecycle
from webapp.runs.models import Run, RunDocument, RunMetric

pytestmark = pytest.mark.slow
FAULTS = int(os.environ.get("LAB_DATABASE_FAULTS", "8"))
#: Seconds for which a connection is half open, or each of its bytes late: longer than the crew's lease.
LONG = 5.0 if FAULTS > 8 else 2.5
LIMIT = 60 + 10 * FAULTS
WORK = "sleep 0.2"


@pytest.fixture
def network(crew: Crew) -> Iterator[Proxy]:
    """Between the crew and the database; the test itself reaches the database directly."""
    place = f"{connection.settings_dict['HOST']}:{connection.settings_dict['PORT']}"
    host, port = place.split(":")
    made = Proxy((host, int(port)))
    address = crew.environment["DATABASE_URL"].replace(place, f"127.0.0.1:{made.port}")
    crew.environment = {**crew.environment, "DATABASE_URL": address}
    yield made
    made.close()


def cut(network: Proxy) -> None:
    network.cut()
    time.sleep(random.random())
    network.mend()


def leave_half_open(network: Proxy) -> None:
    network.freeze()
    time.sleep(LONG)
    network.cut()
    network.mend()


def delay(network: Proxy) -> None:
    network.delay = LONG / 2
    time.sleep(LONG)
    network.delay = 0.0


@pytest.mark.timeout(LIMIT + 60)
def test_a_network_that_fails_in_mid_transaction_loses_no_run_and_doubles_none(
    crew: Crew, network: Proxy
) -> None:
    dice = random.Random(5)
    runs = queue_runs(project(), *[WORK] * 20)
    crew.fork(2)
    done: list[str] = []
    while len(done) < FAULTS:
        # In the midst of claims, renewals and results alike.
        time.sleep(dice.random())
        fault = dice.choice((cut, cut, leave_half_open, delay))
        fault(network)
        done.append(fault.__name__)
        lifecycle.reap()
        if Run.objects.filter(state__in=("queued", "running")).count() < 6:
            runs += queue_runs(runs[0].project, *[WORK] * 10)
    until(lambda: lifecycle.reap() >= 0 and all_ended(runs), LIMIT, "every run ended")
    ended = Run.objects.filter(pk__in=[run.pk for run in runs])
    report(done, len(runs))
    assert Counter(ended.values_list("state", "crashes")) == {("succeeded", 0): len(runs)}
    assert RunDocument.objects.count() == RunMetric.objects.count() == len(runs)
    told = ended.aggregate(attempts=Sum("attempt"), losses=Sum("infrastructure_losses"))
    assert told["attempts"] == len(runs) + told["losses"]


def report(done: list[str], runs: int) -> None:
    losses = Run.objects.aggregate(losses=Sum("infrastructure_losses"))["losses"]
    states = Counter(Run.objects.values_list("state", flat=True))
    told = {"runs": runs, "ended": states, "attempts lost and taken up again": losses}
    tell(faults=Counter(done), **told, doubled=RunDocument.objects.count() - states["succeeded"])


def test_a_worker_keeps_its_connections_from_one_lease_to_the_next(crew: Crew) -> None:
    (run,) = queue_runs(project(), "sleep 6")
    crew.hire()
    until(lambda: Run.objects.filter(pk=run.pk, state="running").exists(), LIMIT, "the run is at work")
    time.sleep(0.5)
    before, lease = backends(), renewal_of(run)
    time.sleep(2)
    assert renewal_of(run) > lease
    assert backends() == before  # ten leases and as many looks of the idle slot later


def renewal_of(run: Run) -> datetime:
    run.refresh_from_db()
    assert run.lease_until is not None
    return run.lease_until


def backends() -> set[int]:
    """The server's processes for everybody but this test."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'"
            " AND datname = current_database() AND pid <> pg_backend_pid()"
        )
        return {pid for (pid,) in cursor.fetchall()}
