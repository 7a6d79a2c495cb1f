"""Groups of a long history, made of the columns of its segments: always those that the database makes of the
runs themselves.
"""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.webapp import cast
from tests.webapp.cast import Place
from tests.webapp.history.segments.history import (
    ALL,
    BATCH,
    LOSS,
    OPTION,
    PEAK,
    STEP,
    TEXTS,
    agree,
    build,
    count_sizes,
    fill,
    same,
)
from webapp.history import table
from webapp.history.models import SegmentColumn
from webapp.history.search import parse
from webapp.history.search.rows import groups
from webapp.history.search.tree import And, Between, Compare, Condition, Field, Missing, Not, OneOf, Or
from webapp.history.search.words import write
from webapp.history.segments import keeping, reading, rows
from webapp.runs.models import Run

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
