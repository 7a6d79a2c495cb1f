"""The figures of a suite from night to night, each with the revision of the code that gave it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import F
from django.db.models.fields.json import KeyTextTransform, KeyTransform

from experiments.core.differences import ENDS, EQUAL, is_unseen
from experiments.core.metrics import METRICS
from webapp.nightly.models import Schedule
from webapp.nightly.suites import title_of
from webapp.runs.models import Run

NIGHTS_SHOWN = 120
CHARTS_AT_FIRST = 4


@dataclass(frozen=True)
class Point:
    """One figure of one night. ``revision`` is of the code that gave it."""

    title: str
    metric: str
    value: float
    revision: str
    run: Run
    slot: datetime


@dataclass(frozen=True)
class History:
    """Points from the oldest night to the newest, and the slots of all nights, with figures or without."""

    points: tuple[Point, ...]
    slots: tuple[datetime, ...]

    def nights_between(self, first: Point, second: Point) -> int:
        return sum(first.slot < slot < second.slot for slot in self.slots)

    @property
    def nights(self) -> int:
        return len({point.run.experiment_id for point in self.points})

    @property
    def metrics(self) -> list[str]:
        """Reported metrics, those with a direction first."""
        reported = {point.metric for point in self.points}
        known = [metric for metric in METRICS.values() if metric.name in reported]
        return [metric.name for metric in sorted(known, key=lambda metric: metric.lower_is_better is None)]

    def of(self, metric: str) -> dict[str, list[Point]]:
        """The points of a metric by the run's title."""
        found: dict[str, list[Point]] = {}
        for point in self.points:
            if point.metric == metric:
                found.setdefault(point.title, []).append(point)
        return found


def history(schedule: Schedule) -> History:
    nights = list(schedule.nights.all()[:NIGHTS_SHOWN])
    runs = Run.objects.filter(experiment__night__in=nights, state__in=Run.ANSWERED)
    runs = runs.select_related("experiment__night", "host").with_figures().defer("log_tail")
    revision = KeyTextTransform("revision", KeyTransform("provenance", "document__outcome"))
    stamped = runs.annotate(code=revision, slot=F("experiment__night__slot"))
    points = tuple(_points(stamped.order_by("slot", "queued_at")))
    return History(points, tuple(night.slot for night in nights))


def _points(runs: Iterable[Any]) -> Iterable[Point]:
    for run in runs:
        title = title_of(run)
        values = {name: value for name, value in run.figures.items() if name in METRICS}
        for name, value in values.items():
            if name not in ENDS:
                counted = EQUAL if is_unseen(name, values) else value
                yield Point(title, name, counted, (run.code or "")[:12], run, run.slot)
