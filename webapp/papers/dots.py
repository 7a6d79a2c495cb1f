"""Our figures next to the paper's: one line for each claim on a common axis of relative difference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from webapp.papers.catalog import ClaimRow

#: The axis ends no nearer than 10 % and no farther than 100 % from the paper's figure.
NEAREST, FARTHEST = 0.1, 1.0


@dataclass(frozen=True)
class Span:
    """A stretch of the axis, in per cent of its width."""

    left: float
    width: float


@dataclass(frozen=True)
class Dot:
    """A claim on the axis; ``at`` in per cent of its width, ``None`` where we have no figure to compare."""

    row: ClaimRow
    at: float | None
    band: Span
    interval: Span | None
    is_beyond: bool


@dataclass(frozen=True)
class DotPlot:
    dots: tuple[Dot, ...]
    limit: float

    @property
    def ticks(self) -> list[tuple[float, float]]:
        """Places of the axis in per cent of its width, with the difference that each stands for."""
        return [(50 + 50 * share, share * self.limit) for share in (-1.0, -0.5, 0.0, 0.5, 1.0)]


def dot_plot(rows: Sequence[ClaimRow]) -> DotPlot:
    """The claims that can be carried out here, in the order of the sheet."""
    shown = [row for row in rows if not row.claim.cannot]
    far = [abs(row.ratio - 1) for row in shown if row.ratio is not None]
    limit = _round_up(min(max([NEAREST, *far, *(1.5 * row.claim.tolerance for row in shown)]), FARTHEST))
    return DotPlot(tuple(_dot(row, limit) for row in shown), limit)


def _round_up(limit: float) -> float:
    """To the next tenth."""
    return math.ceil(round(limit * 10, 6)) / 10


def _dot(row: ClaimRow, limit: float) -> Dot:
    value, verdict = row.claim.value, row.verdict
    if not value:
        return Dot(row, None, Span(50.0, 0.0), None, is_beyond=False)
    band = _span(*row.claim.band, value, limit)
    has_interval = verdict.low is not None and verdict.high is not None
    interval = _span(verdict.low or 0.0, verdict.high or 0.0, value, limit) if has_interval else None
    if row.ratio is None:
        return Dot(row, None, band, None, is_beyond=False)
    return Dot(row, _at(row.ratio - 1, limit), band, interval, abs(row.ratio - 1) > limit)


def _at(difference: float, limit: float) -> float:
    """The place on the axis in per cent of its width; at its end for what lies beyond."""
    return 50 + 50 * max(-1.0, min(1.0, difference / limit))


def _span(low: float, high: float, value: float, limit: float) -> Span:
    """From ``low`` to ``high``, which are figures of a claim that says ``value``."""
    left, right = sorted((_at(low / value - 1, limit), _at(high / value - 1, limit)))
    return Span(left, right - left)
