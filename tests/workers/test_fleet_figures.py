"""The pieces of `benchmarks.fleet`: fairness, percentiles, and claimers of which no two have the same run."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext

from benchmarks.fleet import jain
from benchmarks.queue_costs import claim_on_schedule, fill, percentile
from tests.workers.crew import project, queue_runs
from webapp.accounts.models import Project
from webapp.hosts.models import Host
from webapp.runs import lifecycle
from webapp.runs.models import Run


def test_fairness_is_one_among_equals_and_a_third_where_one_of_three_has_all() -> None:
    assert jain([7, 7, 7]) == 1
    assert jain([9, 0, 0]) == pytest.approx(1 / 3)
    assert jain([1, 2, 3]) == pytest.approx(36 / (3 * 14))


def test_a_percentile_is_a_value_that_was_seen() -> None:
    hundred = tuple(range(1, 101))
    assert (percentile(hundred, 0.5), percentile(hundred, 0.99), percentile(hundred, 1)) == (50, 99, 100)
    assert percentile((3.0,), 0.99) == 3.0


@pytest.mark.django_db(transaction=True)
def test_claimers_on_a_schedule_share_what_waits_and_each_claim_is_timed_from_when_it_was_due() -> None:
    where = project()
    fill(10, lambda count: queue_some(where, min(count, 4)))
    assert Run.objects.filter(state="queued").count() == 12  # copies are of all four

    def claim(number: int) -> tuple[list[object], list[float], float, float]:
        try:
            # Due two seconds ago: the first claim has waited since then.
            return claim_on_schedule(number, time.time() - 2, 4, 0.0)  # type: ignore[return-value]
        finally:
            connections.close_all()

    for number in range(3):
        Host.objects.create(name=f"claimer-{number}")
    with ThreadPoolExecutor(3) as pool:
        parts = list(pool.map(claim, range(3)))
    ids = [run for found, *_ in parts for run in found]
    assert len(ids) == len(set(ids)) == 12
    assert all(seconds[0] >= 2 for _, seconds, *_ in parts)
    assert not Run.objects.filter(state="queued").exists()


@pytest.mark.django_db(transaction=True)
def test_looking_for_lost_runs_looks_at_no_run_that_merely_waits() -> None:
    where = project()
    fill(3000, lambda count: queue_some(where, min(count, 10)))
    with CaptureQueriesContext(connection) as seen:
        assert lifecycle.reap() == 0
    plans = [plan(row["sql"]) for row in seen if "runs_run" in row["sql"]]
    assert len(plans) == 5
    assert all("Scan using run_" in text or "_after_id_" in text for text in plans), plans
    assert not any("Seq Scan on runs_run" in text or "run_turns" in text for text in plans), plans


def queue_some(where: Project, count: int) -> None:
    queue_runs(where, *["ok"] * count)


def plan(query: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN " + query.replace("%", "%%"), [])
        return "\n".join(line for (line,) in cursor.fetchall())
