"""Which segments there are, and what is written while one is built."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from datetime import timedelta
from threading import Event, Thread

import pytest
from django.db import connection, transaction
from django.db.models import Q
from django.utils import timezone

from tests.webapp import cast
from tests.webapp.cast import Place
from tests.webapp.history.segments.history import HOUR, agree, build, fill, one_of
from webapp.history import table
from webapp.history.models import Segment, SegmentMark
from webapp.history.search import parse
from webapp.history.segments import keeping, reading
from webapp.runs.models import Run


def end_runs(place: Place, minutes: Iterable[int]) -> None:
    """A run that ended so many minutes after an hour of long ago, of each of these."""
    made, began = cast.experiment(place.project), timezone.now() - 100 * HOUR
    for minute in minutes:
        run = cast.run(made, "vdnn", {"step_time": minute}, seed=minute)
        Run.objects.filter(pk=run.pk).update(finished_at=began + minute * timedelta(minutes=1))


def sizes() -> list[tuple[bool, int | None]]:
    """Of each segment whether it is short, and its runs."""
    return list(Segment.objects.order_by("short", "begins").values_list("short", "size"))


def go_on_until_built() -> None:
    """Transactions of other tests' databases are waited for, too."""
    for _ in range(600):
        keeping.go_on(timezone.now())
        if not Segment.objects.filter(
            Q(size=None) | Q(pk__in=SegmentMark.objects.values("segment"))
        ).exists():
            return
        time.sleep(0.1)
    pytest.fail("a segment is not built within a minute")


def test_short_segments_stay_until_a_whole_one_has_their_runs(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "SIZE", 10)
    monkeypatch.setattr(keeping, "SHORT", 3)
    ada = cast.place("ada")
    end_runs(ada, range(8))
    build(ada)
    assert sizes() == [(True, 3), (True, 3)]
    end_runs(ada, range(8, 15))
    keeping.form(ada.project, timezone.now())
    assert sizes() == [(False, None), (True, 3), (True, 3), (True, None)]
    agree(ada)
    build(ada)
    assert sizes() == [(False, 10), (True, 3)]
    agree(ada)
    end_runs(ada, range(15, 19))
    build(ada)
    assert sizes() == [(False, 10), *[(True, 3)] * 2]
    agree(ada)


def test_no_run_is_in_a_short_segment_and_a_whole_one(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """One across the bound of two, for runs ended in the past, goes with the first that is built."""
    monkeypatch.setattr(keeping, "SIZE", 6)
    monkeypatch.setattr(keeping, "SHORT", 2)
    ada = cast.place("ada")
    end_runs(ada, range(5))
    build(ada)
    end_runs(ada, [1, 1, 1, *range(5, 12)])
    keeping.form(ada.project, timezone.now())
    for short in Segment.objects.filter(short=True):
        keeping.build(short)
    first, second = Segment.objects.filter(short=False).order_by("begins")
    across = Segment.objects.filter(short=True, begins__lt=first.ends, ends__gt=first.ends)
    assert across.get().size == 2
    for segment in (second, first):
        keeping.build(segment)
        agree(ada)
        assert not across.exists()


def test_segments_of_another_server_are_built_here(history: Place) -> None:
    """Its transactions had larger numbers: what was marked was never built again."""
    chosen = one_of(history, 1)
    Segment.objects.update(armed=2**62)
    Run.objects.filter(pk=chosen.pk).update(policy="renamed")
    keeping.go_on(timezone.now())
    assert not Segment.objects.filter(armed=2**62).exists()


@pytest.mark.django_db(transaction=True)
def test_what_began_before_a_segment_was_there_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot mark what it does not know of: the segment is built once it has ended."""
    monkeypatch.setattr(keeping, "SIZE", 3)
    ada = cast.place("ada")
    fill(ada.project, 20, random.Random(3))
    run = (
        table.runs_of(ada.project)
        .filter(state__in=Run.FINAL, finished_at__isnull=False)
        .earliest("finished_at")
    )
    written, may_end = Event(), Event()

    def write_slowly() -> None:
        with transaction.atomic():
            Run.objects.filter(pk=run.pk).update(policy="slow")
            written.set()
            may_end.wait(30)
        connection.close()

    thread = Thread(target=write_slowly)
    thread.start()
    assert written.wait(30)
    for _ in range(3):
        keeping.go_on(timezone.now())
    assert Segment.objects.exists() and not Segment.objects.exclude(size=None).exists()
    may_end.set()
    thread.join()
    go_on_until_built()
    agree(ada)
    query = parse("policy = slow group by policy: count")
    found = reading.groups_of_many([ada.project.pk], query, 9, with_archived=True)
    assert found is not None and found.rows == [{"policy": "slow", "count": 1}]


@pytest.mark.django_db(transaction=True)
def test_what_a_whole_segment_replaces_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "SIZE", 6)
    monkeypatch.setattr(keeping, "SHORT", 2)
    ada = cast.place("ada")
    end_runs(ada, range(4))
    go_on_until_built()
    assert sizes() == [(True, 2)]
    Run.objects.filter(seed=0).update(policy="orca")
    end_runs(ada, range(4, 10))
    assert SegmentMark.objects.exists()
    go_on_until_built()
    assert sizes() == [(False, 6), (True, 2)]
    agree(ada)
    keeping.go_on(timezone.now())
    assert not SegmentMark.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_what_is_written_while_a_segment_is_built_marks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "SIZE", 3)
    ada = cast.place("ada")
    fill(ada.project, 20, random.Random(3))
    go_on_until_built()
    run, store = one_of(ada, 0), keeping._store
    Run.objects.filter(pk=run.pk).update(policy="first")

    def write() -> None:
        Run.objects.filter(pk=run.pk).update(policy="second")
        connection.close()

    def write_meanwhile(segment: Segment) -> None:
        """Committed by another connection once the runs are read."""
        thread = Thread(target=write)
        thread.start()
        thread.join()
        store(segment)

    monkeypatch.setattr(keeping, "_store", write_meanwhile)
    keeping.go_on(timezone.now())
    assert SegmentMark.objects.count() == 1
    agree(ada)
    monkeypatch.setattr(keeping, "_store", store)
    keeping.go_on(timezone.now())
    assert not SegmentMark.objects.exists()
    agree(ada)
