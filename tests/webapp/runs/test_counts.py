"""Counts of an experiment's runs, which triggers keep: always what counting the runs gives."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.webapp.cast import Cast, experiment, make_cast, run, signed_in
from webapp.accounts import deletion, trash
from webapp.hosts.services import register
from webapp.runs import lifecycle, trashing
from webapp.runs.lifecycle import Ending
from webapp.runs.models import Experiment, Run, RunCount, TrashedRuns
from webapp.runs.services import cancel, cancel_experiment, trash_experiment
from webapp.runs.trashing import put_into_trash

COUNTED = Counter[str]
ENDINGS = st.sampled_from([Run.State.SUCCEEDED, Run.State.FAILED, Run.State.INFEASIBLE])
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(Run.State.values)),
        st.tuples(st.just("finish"), ENDINGS),
        st.sampled_from([("claim",), ("release",), ("expire",), ("cancel",), ("cancel all",)]),
        st.sampled_from([("throw away",), ("take back",)]),
        st.sampled_from([("delete",), ("move",), ("trash",), ("restore",), ("purge",)]),
    ),
    max_size=25,
)


def kept(one: Experiment) -> COUNTED:
    found = Experiment.objects.with_counts().get(pk=one.pk)
    counts = Counter({state: getattr(found, state) for state in Run.State.values if getattr(found, state)})
    assert getattr(found, "total") == counts.total()  # noqa: B009 (an annotation)
    return counts


def plain(one: Experiment) -> COUNTED:
    return Counter(Run.objects.filter(experiment=one).values_list("state", flat=True))


class Crew:
    """What may happen to the runs of two experiments, by name."""

    def __init__(self, cast: Cast) -> None:
        self.cast, self.host = cast, register("one", {"device_kinds": ["cpu"], "sandbox_tier": "limits"})
        self.experiments = [experiment(cast.project, "first"), experiment(cast.project, "second")]
        self.claims: list[Any] = []

    def make(self, name: str, *details: str) -> None:
        getattr(self, name.replace(" ", "_"))(*details)

    def first_run(self) -> Run | None:
        return Run.objects.order_by("queued_at").first()

    def add(self, state: str) -> None:
        run(self.experiments[len(state) % len(self.experiments)], state=state)

    def throw_away(self) -> None:
        ended = Run.objects.filter(state__in=Run.FINAL).order_by("queued_at")[:2]
        put_into_trash(self.cast.project, Run.objects.filter(pk__in=[one.pk for one in ended]), self.cast.max)

    def take_back(self) -> None:
        if lying := TrashedRuns.objects.first():
            trashing.take_back(lying, self.cast.max)

    def claim(self) -> None:
        found = lifecycle.claim(self.host, ["cpu"], "limits")
        self.claims += [found] if found else []

    def finish(self, state: str) -> None:
        if self.claims:
            lifecycle.finish(self.claims.pop(), Ending(state, "as asked"))

    def release(self) -> None:
        if self.claims:
            lifecycle.release(self.claims.pop(), lost=True)

    def expire(self) -> None:
        past = timezone.now() - timedelta(seconds=1)
        Run.objects.filter(state=Run.State.RUNNING).update(lease_until=past)
        lifecycle.reap()

    def cancel(self) -> None:
        found = self.first_run()
        if found:
            cancel(found)

    def cancel_all(self) -> None:
        cancel_experiment(self.experiments[0])

    def delete(self) -> None:
        found = self.first_run()
        if found:
            found.delete()

    def move(self) -> None:
        Run.objects.filter(experiment=self.experiments[0]).update(experiment=self.experiments[-1])

    def trash(self) -> None:
        trash_experiment(self.experiments[0])

    def restore(self) -> None:
        if self.experiments[0].trashed_at:
            trash.restore(self.cast.red, "experiment", str(self.experiments[0].pk), self.cast.max)
            self.experiments[0].refresh_from_db()

    def purge(self) -> None:
        """Delete what is in the trash for good; another experiment comes in its place."""
        first = self.experiments[0]
        if first.trashed_at:
            deletion.delete(self.cast.red, "experiment", str(first.pk), self.cast.ada)
            assert not RunCount.objects.filter(experiment=first.pk).exists()
            self.experiments[0] = experiment(self.cast.project, "another")


@pytest.mark.django_db
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=MOVES)
def test_whatever_happens_the_counts_are_those_of_the_runs(cast: Cast, moves: Any) -> None:
    Run.objects.all().delete()
    crew = Crew(cast)
    for move in moves:
        crew.make(*move)
        for one in crew.experiments:
            assert kept(one) == plain(one), move


@pytest.mark.django_db
def test_two_runs_succeed_one_fails_and_the_list_says_so(cast: Cast) -> None:
    one = experiment(cast.project, "three of a kind")
    runs = [run(one, state=Run.State.RUNNING) for _ in range(3)]
    assert kept(one) == {"running": 3}
    Run.objects.filter(pk__in=[runs[0].pk, runs[1].pk]).update(state=Run.State.SUCCEEDED)
    Run.objects.filter(pk=runs[2].pk).update(state=Run.State.FAILED)
    assert kept(one) == {"succeeded": 2, "failed": 1}
    page = signed_in(cast.ada).get(cast.url("experiments/")).content.decode()
    assert "three of a kind" in page and "1 failed" in page


@pytest.mark.django_db
def test_runs_that_were_there_before_the_triggers_are_counted_by_the_migration(cast: Cast) -> None:
    """Two runs before the triggers; then, while it is counted, one of them ends and a third comes."""
    from django.db.migrations.loader import MigrationLoader

    loader = MigrationLoader(connection)
    backfill = loader.get_migration("runs", "0011_count_runs").operations[0].sql  # type: ignore[attr-defined]
    one = experiment(cast.project)
    runs = [run(one, state=Run.State.RUNNING) for _ in range(2)]
    RunCount.objects.all().delete()  # as if the triggers had come now
    Run.objects.filter(pk=runs[0].pk).update(state=Run.State.FAILED)
    run(one, state=Run.State.QUEUED)
    assert kept(one)["running"] == -1
    with connection.cursor() as cursor:
        cursor.execute(backfill)
    assert kept(one) == {"failed": 1, "running": 1, "queued": 1}


@pytest.mark.django_db(transaction=True)
def test_workers_that_end_runs_of_one_experiment_at_the_same_time_lose_none() -> None:
    cast = make_cast()
    one = experiment(cast.project)
    runs = [run(one, state=Run.State.RUNNING) for _ in range(40)]

    def end(part: list[Run]) -> None:
        try:
            for each in part:
                Run.objects.filter(pk=each.pk).update(state=Run.State.SUCCEEDED)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(end, [runs[start::4] for start in range(4)]))
    assert kept(one) == {"succeeded": 40}
    assert RunCount.objects.filter(experiment=one, state=Run.State.SUCCEEDED).count() > 1
