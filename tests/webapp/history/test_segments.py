"""Groups of a long history, made of the columns of its segments: always those that the database makes of the
runs themselves.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from threading import Event, Thread
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import Q
from django.utils import timezone
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.webapp import cast
from tests.webapp.cast import Place
from webapp.history import archive, table
from webapp.history.models import RunTag, Segment, SegmentColumn, SegmentMark
from webapp.history.search import parse
from webapp.history.search.rows import groups
from webapp.history.search.tree import And, Between, Compare, Condition, Field, Missing, Not, OneOf, Or
from webapp.history.search.words import write
from webapp.history.segments import keeping, reading, rows
from webapp.history.segments.rows import ended_between
from webapp.runs import trashing
from webapp.runs.models import Experiment, Run, RunMetric

HOUR = timedelta(hours=1)
VALUES = (8, 16.0, 16, 0.1, True, False, "true", "many", "", None, [1, 2], {"a": 1}, 2**60)
FIGURES = (0.5, 0.5, 1.0, 1.0, 2.0, 2.0, 7.25, 7.25, float("inf"), float("nan"))
BATCH, OPTION = Field("knob", "max_batch"), Field("option", "batch")
STEP, PEAK, LOSS = (Field("metric", name) for name in ("step_time", "peak_memory", "loss"))
TEXTS = {"policy": ("vdnn", "orca", ""), "hardware": ("a100-40g", "t4-16g"), "state": ("succeeded", "queued")}
ALL = ", ".join(
    ["count", *(f"{one}(step_time)" for one in ("min", "max", "mean", "std", "median", "interval"))]
)


def fill(project: Any, count: int, draw: random.Random) -> None:
    """Runs of every kind of value, most of them ended, a minute after each other."""
    made = cast.experiment(project)
    began = timezone.now() - count * timedelta(minutes=1) - HOUR
    for number in range(count):
        knobs = {} if draw.random() < 0.2 else {"max_batch": draw.choice(VALUES)}
        figures = {name: draw.choice(FIGURES) for name in ("step_time", "peak_memory")}
        run = cast.run(
            made,
            draw.choice(TEXTS["policy"]),
            {name: value for name, value in figures.items() if draw.random() < 0.8},
            draw.choice((*Run.State.values, "succeeded", "succeeded", "failed")),
            hardware=draw.choice(TEXTS["hardware"]),
            seed=draw.choice((0, 1, 2**62 + 1)),
            knobs=knobs,
        )
        moment = began + (number // 2) * timedelta(minutes=1)  # two end together
        Run.objects.filter(pk=run.pk).update(queued_at=moment - HOUR)
        if run.state in Run.FINAL:
            Run.objects.filter(pk=run.pk).update(finished_at=None if draw.random() < 0.1 else moment)


@pytest.fixture
def history(db: None, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Sixty runs in segments of five and more, and a few in a short one or in none."""
    monkeypatch.setattr(keeping, "SIZE", 5)
    monkeypatch.setattr(keeping, "SHORT", 2)
    ada = cast.place("ada")
    fill(ada.project, 60, random.Random(7))
    build(ada)
    assert Segment.objects.count() > 6
    return ada


def build(place: Place) -> None:
    keeping.form(place.project, timezone.now())
    for short in (False, True):
        for segment in Segment.objects.filter(short=short):
            keeping.build(segment)


numbers = st.sampled_from([0.0, 0.1, 0.5, 1.0, 8.0, 16.0, 2.0**60])
words = st.sampled_from(["true", "False", "many", "none"])
conditions = st.recursive(
    st.one_of(
        st.builds(
            Compare,
            st.sampled_from([STEP, PEAK, LOSS, BATCH, OPTION, Field("column", "seed")]),
            st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
            numbers,
        ),
        st.builds(Compare, st.just(BATCH), st.sampled_from(["=", "!="]), words),
        st.builds(lambda *values: OneOf(BATCH, values), numbers, words),
        st.builds(Between, st.sampled_from([STEP, BATCH]), numbers, numbers),
        st.builds(Missing, st.sampled_from([STEP, LOSS, BATCH, Field("column", "policy")])),
        st.sampled_from(sorted(TEXTS)).flatmap(
            lambda name: st.builds(
                Compare,
                st.just(Field("column", name)),
                st.sampled_from(["=", "!="]),
                st.sampled_from(TEXTS[name]),
            )
        ),
        st.integers(-2, 70).map(
            lambda minutes: Compare(
                Field("column", "time"), "<", (timezone.now() - minutes * timedelta(minutes=1)).isoformat()
            )
        ),
    ),
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(lambda *parts: And(parts), inner, inner),
        st.builds(lambda *parts: Or(parts), inner, inner, inner),
    ),
    max_leaves=6,
)


def same(found: reading.Grouped | None, wanted: list[dict[str, Any]], keys: int) -> bool:
    """Whether two lists of groups are equal but for the order of those of one size, and the last digits."""
    if found is None or found.count != sum(row.get("count", 0) for row in wanted):
        return False
    (groups_found, figures_found), (groups_wanted, figures_wanted) = (
        _apart(found.rows, keys),
        _apart(wanted, keys),
    )
    return groups_found == groups_wanted and figures_found == pytest.approx(
        figures_wanted, rel=1e-12, nan_ok=True
    )


def _apart(rows: list[dict[str, Any]], keys: int) -> tuple[list[str], list[float]]:
    """What the groups are, in an order, and their figures one after the other; -1 for none."""
    told = sorted((repr(_plain(list(row.values())[:keys])), list(row.values())[keys:]) for row in rows)
    return [key for key, _ in told], [-1.0 if one is None else one for _, figures in told for one in figures]


def _plain(values: list[Any]) -> list[Any]:
    return [float(value) if type(value) is int else value for value in values]


def test_groups_of_columns_are_those_of_the_runs(history: Place) -> None:
    runs = table.runs_of(history.project)
    by = ["policy", "hardware, policy", "knob.max_batch", "option.batch, state", "param.nobody"]

    @settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(condition=st.one_of(st.none(), conditions), group=st.sampled_from(by))
    @example(condition=Not(Between(STEP, 0.0, 8.0)), group="option.batch, state")  # medians of infinite ones
    def compare(condition: Condition | None, group: str) -> None:
        query = replace(parse(f"group by {group}: {ALL}, max(metric.loss)"), condition=condition)
        found = reading.groups_of_many([history.project.pk], query, 100, with_archived=True)
        assert same(found, groups(runs, query, 100), group.count(",") + 1), write(query)

    compare()


def count_sizes() -> int:
    """Runs of segments that are read."""
    marked = SegmentMark.objects.values("segment")
    return sum(Segment.objects.exclude(pk__in=marked).values_list("size", flat=True))


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


def agree(place: Place) -> None:
    for text in (f"group by policy, state: {ALL}", "step_time > 0.5 group by knob.max_batch: count"):
        query = parse(text)
        listed, _ = archive.divide(table.runs_of(place.project), place.project, query)
        found = reading.groups_of_many([place.project.pk], query, 100, with_archived=False)
        assert same(found, groups(listed, query, 100), len(query.group)), text


def one_of(place: Place, segment: int) -> Run:
    """A run of the project's segment of that number."""
    chosen = Segment.objects.order_by("begins")[segment]
    return ended_between(place.project.pk, chosen.begins, chosen.ends)[0]


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


def end_runs(place: Place, minutes: Iterable[int]) -> None:
    """A run that ended so many minutes after an hour of long ago, of each of these."""
    made, began = cast.experiment(place.project), timezone.now() - 100 * HOUR
    for minute in minutes:
        run = cast.run(made, "vdnn", {"step_time": minute}, seed=minute)
        Run.objects.filter(pk=run.pk).update(finished_at=began + minute * timedelta(minutes=1))


def sizes() -> list[tuple[bool, int | None]]:
    """Of each segment whether it is short, and its runs."""
    return list(Segment.objects.order_by("short", "begins").values_list("short", "size"))


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


def test_many_different_numbers_and_few_that_have_them(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a byte counts, one of them no number of eight bytes; a knob that one of 300 has."""
    monkeypatch.setattr(keeping, "SIZE", 290)
    ada = cast.place("ada")
    made = cast.experiment(ada.project)
    for number in range(300):
        knobs = {"max_batch": number / 7, "wide": 2**60 + number} | ({"rare": 1} if number == 150 else {})
        cast.run(made, "vdnn", {"step_time": number / 3}, knobs=knobs)
    build(ada)
    assert count_sizes() > 280
    for text in (
        "knob.max_batch > 20 group by knob.max_batch: count",
        f"param.wide > {2**60 + 17} group by policy: count, median(step_time)",
        "group by param.wide: count, max(step_time)",
        "param.rare = 1 group by policy: count, mean(step_time)",
        "not (param.rare = 1) group by param.rare: count, std(step_time)",
    ):
        query = parse(text)
        found = reading.groups_of_many([ada.project.pk], query, 400, with_archived=True)
        assert same(found, groups(table.runs_of(ada.project), query, 400), 1), text


def test_groups_by_many_fields_of_many_values(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven fields of 400 values: all together they are more than 64 bits count."""
    monkeypatch.setattr(keeping, "SIZE", 395)
    ada = cast.place("ada")
    made, names = cast.experiment(ada.project), [f"p{place}" for place in range(8)]
    for number in range(400):
        cast.run(made, "vdnn", {"step_time": 1.0}, knobs={name: str(number) for name in names})
    build(ada)
    query = parse(f"group by {', '.join(f'param.{name}' for name in names)}: count")
    found = reading.groups_of_many([ada.project.pk], query, 500, with_archived=True)
    assert same(found, groups(table.runs_of(ada.project), query, 500), len(names))


def test_a_segment_of_too_many_fields_is_left_to_the_rows(
    history: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "MOST_FIELDS", 8)
    build(history)
    assert count_sizes() and not SegmentColumn.objects.exists()
    agree(history)


def test_segments_of_another_server_are_built_here(history: Place) -> None:
    """Its transactions had larger numbers: what was marked was never built again."""
    chosen = one_of(history, 1)
    Segment.objects.update(armed=2**62)
    Run.objects.filter(pk=chosen.pk).update(policy="renamed")
    keeping.go_on(timezone.now())
    assert not Segment.objects.filter(armed=2**62).exists()


@pytest.mark.parametrize(
    "text",
    [
        "vdnn group by policy: count",
        "tag = paper group by policy: count",
        "policy like v* group by policy: count",
        "knob.max_batch < many group by policy: count",
        "group by artifact: count",
        f"param.{'x' * 101} = 1 group by policy: count",
    ],
)
def test_what_columns_do_not_know_is_left_to_the_database(history: Place, text: str) -> None:
    assert reading.groups_of_many([history.project.pk], parse(text), 10, with_archived=True) is None


def test_only_the_projects_that_are_asked_for(history: Place) -> None:
    eve = cast.place("eve")
    fill(eve.project, 30, random.Random(8))
    build(eve)
    query = parse(f"group by policy: {ALL}")
    both = [history.project.pk, eve.project.pk]
    for asked in (both, both[:1], both[1:]):
        found = reading.groups_of_many(asked, query, 10, with_archived=True)
        assert same(found, groups(Run.objects.filter(project__in=asked), query, 10), 1)


def test_the_page_of_a_long_history_has_its_groups_at_once(
    history: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where segments do not hold what is asked they follow the page, as before."""
    monkeypatch.setattr(table, "MOST_COUNTED", 10)
    monkeypatch.setattr(table, "PER_PAGE", 20)
    client = cast.signed_in(history.user)
    asked = client.get(history.url("all-runs/"), {"q": "group by policy: min(step_time), count"})
    found = asked.context["found"]
    assert not found.groups_wait and {row["policy"] for row in found.groups} == set(TEXTS["policy"])
    there = table.runs_of(history.project).count()
    assert sum(row["count"] for row in found.groups) == there == found.count and not found.is_more
    asked = client.get(history.url("all-runs/"), {"q": "not zebra group by policy: count"})
    assert asked.context["found"].groups_wait


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
        thread = Thread(
            target=lambda: (Run.objects.filter(pk=run.pk).update(policy="second"), connection.close())
        )
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
