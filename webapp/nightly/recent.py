"""The series of a project's nights in short: a small line each, and its last step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from experiments.core.metrics import METRICS
from webapp.accounts.models import Project
from webapp.compare.statistics import difference, is_better
from webapp.nightly.history import Point, history
from webapp.nightly.models import Schedule
from webapp.nightly.steps import pieces

#: Figures of a suite that are told in short, the first with a direction; series that are shown.
METRICS_EACH, MOST = 2, 7
#: The drawing: its width and height, and the margin of its line.
WIDE, HIGH, MARGIN = 120, 28, 3


@dataclass(frozen=True)
class Trend:
    """A series with its ``line`` as points of a drawing; ``before`` is ``None`` where it never stepped."""

    schedule: Schedule
    title: str
    metric: str
    line: str
    end: tuple[str, str]
    before: float | None
    after: float
    better: bool | None
    since: datetime | None

    @property
    def change(self) -> str:
        """``+6.2 %``; empty for a steady series."""
        fraction = None if self.before is None else difference(self.after, self.before)
        return "" if fraction is None else f"{100 * fraction:+.1f} %".replace("-", "−")


def trends_of(project: Project) -> tuple[list[Trend], int]:
    """The series that stepped last first, and how many series there are."""
    found = [trend for schedule in project.schedules.order_by("suite") for trend in _trends(schedule)]
    stepped = sorted((one for one in found if one.since), key=lambda one: str(one.since), reverse=True)
    steady = [one for one in found if not one.since]
    return [*stepped, *steady][:MOST], len(found)


def _trends(schedule: Schedule) -> Iterator[Trend]:
    told = history(schedule)
    directed = [name for name in told.metrics if METRICS[name].lower_is_better is not None]
    for metric in directed[:METRICS_EACH]:
        for title, points in told.of(metric).items():
            yield _trend(schedule, title, metric, points)


def _trend(schedule: Schedule, title: str, metric: str, points: Sequence[Point]) -> Trend:
    levels = pieces(points)
    after = levels[-1].level
    places = _places([point.value for point in points])
    line = " ".join(f"{x},{y}" for x, y in places)
    if len(levels) == 1:
        return Trend(schedule, title, metric, line, places[-1], None, points[-1].value, None, None)
    before, since = levels[-2].level, points[levels[-1].first].slot
    fraction = difference(after, before)
    better = None if fraction is None else is_better(fraction, METRICS[metric].lower_is_better)
    return Trend(schedule, title, metric, line, places[-1], before, after, better, since)


def _places(values: Sequence[float]) -> list[tuple[str, str]]:
    """Points of the drawing, the lowest value at its lower edge; of equal values in the middle."""
    low, high = min(values), max(values)
    across = (WIDE - 2 * MARGIN) / max(1, len(values) - 1)
    up = (HIGH - 2 * MARGIN) / (high - low) if high > low else 0.0
    middle = 0.0 if up else HIGH / 2 - MARGIN
    return [
        (f"{MARGIN + n * across:.1f}", f"{HIGH - MARGIN - middle - (value - low) * up:.1f}")
        for n, value in enumerate(values)
    ]
