"""A history in segments, and whether its groups are those that the database makes."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tests.webapp import cast
from tests.webapp.cast import Place
from webapp.history import archive, table
from webapp.history.models import Segment, SegmentMark
from webapp.history.search import parse
from webapp.history.search.rows import groups
from webapp.history.search.tree import Field
from webapp.history.segments import keeping, reading
from webapp.history.segments.rows import ended_between
from webapp.runs.models import Run

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


def build(place: Place) -> None:
    keeping.form(place.project, timezone.now())
    for short in (False, True):
        for segment in Segment.objects.filter(short=short):
            keeping.build(segment)


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


def count_sizes() -> int:
    """Runs of segments that are read."""
    marked = SegmentMark.objects.values("segment")
    return sum(Segment.objects.exclude(pk__in=marked).values_list("size", flat=True))


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
