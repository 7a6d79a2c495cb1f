"""How each figure of a suite moved from night to night, as the JSON that ``plots.js`` draws."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import F
from django.db.models.fields.json import KeyTextTransform, KeyTransform

from experiments.core.metrics import METRICS
from webapp.compare.statistics import difference, is_better
from webapp.navigation import project_url
from webapp.nightly.models import Schedule
from webapp.nightly.suites import title_of
from webapp.runs.models import Run

NIGHTS_SHOWN = 120
CHARTS_AT_FIRST = 4
#: A change of at least this fraction between two nights is named above the charts.
NOTABLE = 0.05


@dataclass(frozen=True)
class Point:
    """One figure of one night. ``revision`` is of the code that gave it."""

    title: str
    metric: str
    value: float
    revision: str
    run: Run


@dataclass(frozen=True)
class Change:
    """A figure that moved notably since the night before, with the revisions between which it did."""

    title: str
    metric: str
    before: Point
    after: Point
    fraction: float
    better: bool | None


@dataclass(frozen=True)
class History:
    """Points from the oldest night to the newest."""

    points: tuple[Point, ...]

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
    nights = list(schedule.nights.filter(experiment__isnull=False)[:NIGHTS_SHOWN])
    runs = Run.objects.filter(experiment__night__in=nights, state=Run.State.SUCCEEDED)
    runs = runs.select_related("experiment__night").prefetch_related("metrics").defer("log_tail")
    revision = KeyTextTransform("revision", KeyTransform("provenance", "document__outcome"))
    stamped = runs.annotate(revision=revision, slot=F("experiment__night__slot"))
    return History(tuple(_points(stamped.order_by("slot", "queued_at"))))


def _points(runs: Iterable[Any]) -> Iterable[Point]:
    for run in runs:
        title = title_of(run)
        for row in run.metrics.all():
            if row.name in METRICS:
                yield Point(title, row.name, row.value, (run.revision or "")[:12], run)


def chart(found: History, metric: str, schedule: Schedule) -> dict[str, Any]:
    """One line for each run of the suite over the nights; the revision is on hover."""
    series = [
        {
            "name": title,
            "mode": "lines+markers",
            "x": [f"{point.run.experiment.night.slot:%Y-%m-%d %H:%M}" for point in points],  # type: ignore[union-attr]
            "y": [point.value for point in points],
            "text": [f"revision {point.revision or 'unknown'}" for point in points],
            "href": [project_url(schedule.project, "runs:run", run=point.run.pk) for point in points],
        }
        for title, points in found.of(metric).items()
    ]
    known = METRICS[metric]
    axes = {"x_label": "night (UTC)", "x_unit": "", "y_label": known.label, "y_unit": known.unit}
    return {"title": known.label, "kind": "scatter", **axes, "log": "", "sampled": None, "series": series}


def changes(found: History) -> list[Change]:
    """What moved by ``NOTABLE`` or more between the last two nights, worst first."""
    moved = []
    for metric in found.metrics:
        for title, points in found.of(metric).items():
            change = _change(title, metric, points)
            if change is not None:
                moved.append(change)
    return sorted(moved, key=lambda change: (change.better is not False, -abs(change.fraction)))


def _change(title: str, metric: str, points: list[Point]) -> Change | None:
    direction = METRICS[metric].lower_is_better
    if len(points) < 2 or direction is None:
        return None
    before, after = points[-2:]
    fraction = difference(after.value, before.value)
    if fraction is None or abs(fraction) < NOTABLE:
        return None
    return Change(title, metric, before, after, fraction, is_better(fraction, direction))
