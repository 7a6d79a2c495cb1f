"""Where a figure stepped to another level in the course of the nights, and what is suspected of it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.core.metrics import METRICS
from webapp.compare.statistics import difference, is_better
from webapp.nightly.history import History, Point
from webapp.nightly.levels import FEWEST_MEASURED, Segment, is_worth_telling, segments


@dataclass(frozen=True)
class Alert:
    """A step of one figure: its levels before and after, and the last night before and the first after it.

    ``silent`` nights between the two brought no figure (skipped, failed), so the change may be of any of
    them. ``lasted`` is how many nights the new level has held.
    """

    title: str
    metric: str
    before: float
    after: float
    last_before: Point
    first_after: Point
    silent: int
    lasted: int

    @property
    def fraction(self) -> float | None:
        return difference(self.after, self.before)

    @property
    def better(self) -> bool | None:
        direction = METRICS[self.metric].lower_is_better
        return None if self.fraction is None else is_better(self.fraction, direction)

    @property
    def is_worth_telling(self) -> bool:
        """Any step of a simulated figure; of a measured one those of ``LEAST_MEASURED``."""
        if self.first_after.run.mode == "measured":
            return is_worth_telling(self.before, self.after)
        return self.before != self.after

    @property
    def suspects(self) -> str:
        """The revisions between which the change is, as git spells a range; the code is cleared where they
        are one.
        """
        before, after = self.last_before, self.first_after
        same = before.revision == after.revision != ""
        code = f"{before.revision or 'unknown'}..{after.revision or 'unknown'}"
        code = f"{after.revision} both times, not the code" if same else code
        if before.run.host == after.run.host:
            return code
        return f"{code}; host {before.run.host or 'unknown'} before, {after.run.host or 'unknown'} after"


def pieces(points: Sequence[Point]) -> tuple[Segment, ...]:
    """The segments of a series of nights; a measured one that is too short is one piece."""
    values = tuple(point.value for point in points)
    return segments(values[:1] if _is_short(points) else values)


def _is_short(points: Sequence[Point]) -> bool:
    return len(points) < FEWEST_MEASURED and any(point.run.mode == "measured" for point in points)


def is_too_short(found: History) -> bool:
    """Whether a series is measured and too short for its steps to be told."""
    return any(_is_short(points) for metric in found.metrics for points in found.of(metric).values())


def alerts(found: History) -> list[Alert]:
    """Every step of a figure that has a direction, the newest first and of one night the worst first."""
    steps = [
        alert
        for metric in found.metrics
        if METRICS[metric].lower_is_better is not None
        for title, points in found.of(metric).items()
        for alert in _alerts(found, title, metric, points)
        if alert.is_worth_telling
    ]
    steps.sort(key=lambda step: (step.better is not False, -abs(step.fraction or 0.0)))
    return sorted(steps, key=lambda step: step.first_after.slot, reverse=True)


def _alerts(found: History, title: str, metric: str, points: Sequence[Point]) -> list[Alert]:
    levels = pieces(points)
    return [
        Alert(
            title,
            metric,
            old.level,
            new.level,
            points[old.end - 1],
            points[new.first],
            found.nights_between(points[old.end - 1], points[new.first]),
            new.end - new.first,
        )
        for old, new in itertools.pairwise(levels)
    ]
