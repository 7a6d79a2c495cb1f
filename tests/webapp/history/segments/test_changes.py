"""What changes in a run's figures, place or state is seen at once, and its segment built again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.utils import timezone

from tests.webapp import cast
from tests.webapp.cast import Place
from tests.webapp.history.segments.history import agree, build, one_of
from webapp.history import table
from webapp.history.models import RunTag, Segment, SegmentMark
from webapp.history.search import parse
from webapp.history.segments import reading
from webapp.history.segments.rows import ended_between
from webapp.runs import trashing
from webapp.runs.models import Experiment, Run, RunMetric


@contextmanager
def changing(place: Place, segments: int) -> Iterator[None]:
    """What is changed inside marks so many segments; groups are right before and after these are built."""
    before = SegmentMark.objects.values("segment").distinct().count()
    yield
    assert SegmentMark.objects.values("segment").distinct().count() == before + segments
    agree(place)
    build(place)
    assert not SegmentMark.objects.exists()
    agree(place)


def test_a_change_of_a_run_is_seen_at_once(history: Place) -> None:
    run = one_of(history, 1)
    with changing(history, 1):
        Run.objects.filter(pk=run.pk).update(policy="renamed")
    with changing(history, 1):
        RunMetric.objects.update_or_create(run=run, name="step_time", defaults={"value": 99.0})
    with changing(history, 1):
        RunMetric.objects.filter(run=run).delete()
    with changing(history, 2):
        RunTag.objects.bulk_create([RunTag(run=one_of(history, place), name="archived") for place in (2, 3)])
    with changing(history, 1):
        RunTag.objects.filter(run=one_of(history, 2)).delete()
    with changing(history, 0):
        RunTag.objects.create(run=run, name="paper")
    with changing(history, 1):
        trashed = trashing.put_into_trash(history.project, Run.objects.filter(pk=run.pk), history.user)
    assert trashed is not None
    with changing(history, 1):
        trashing.take_back(trashed, history.user)
    with changing(history, 1):
        Run.objects.filter(pk=run.pk).delete()


def test_the_runs_of_an_experiment_in_the_trash_are_not_seen(history: Place) -> None:
    other = cast.experiment(history.project, "other")
    moved = one_of(history, 1)
    with changing(history, 1):
        Run.objects.filter(pk=moved.pk).update(experiment=other)
    query = parse("group by policy: count")
    for thrown, runs in ((other, 1), (moved.experiment, table.runs_of(history.project).count() - 1)):
        Experiment.objects.filter(pk=thrown.pk).update(trashed_at=timezone.now())
        found = reading.groups_of_many([history.project.pk], query, 100, with_archived=True)
        assert found is not None and found.count == table.runs_of(history.project).count()
        Experiment.objects.filter(pk=thrown.pk).update(trashed_at=None)
        assert found.count == table.runs_of(history.project).count() - runs


def test_a_run_that_goes_on_or_ends_in_the_past_is_seen_at_once(history: Place) -> None:
    run = one_of(history, 1)
    with changing(history, 1):
        Run.objects.filter(pk=run.pk).update(state="running", finished_at=None)
    with changing(history, 1):
        Run.objects.filter(pk=run.pk).update(state="succeeded", finished_at=run.finished_at)
    with changing(history, 1):
        made = cast.run(Experiment.objects.get(), "late", {"step_time": 3.0}, "queued")
        Run.objects.filter(pk=made.pk).update(state="failed", finished_at=run.finished_at)
    with changing(history, 0):
        cast.run(Experiment.objects.get(), "now", {"step_time": 3.0})


def test_a_segment_whose_runs_are_all_gone_is_no_hole(history: Place) -> None:
    chosen = Segment.objects.order_by("begins")[2]
    there = ended_between(history.project.pk, chosen.begins, chosen.ends)
    Run.objects.filter(pk__in=list(there.values_list("pk", flat=True))).delete()
    build(history)
    assert Segment.objects.get(pk=chosen.pk).size == 0
    agree(history)
