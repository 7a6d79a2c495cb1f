"""The statistics of a comparison: repeats folded into an interval, differences from a baseline, the Pareto
front.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiments.core.differences import EQUAL, NO_DIFFERENCE, holds_no_difference

CONFIDENCE = 0.95
#: Whisker, quartile, median, quartile, whisker of a box, as fractions of its values.
FRACTIONS = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Estimate:
    """Repeats of one figure. ``half_width`` is half the 95 % interval of the mean, ``None`` for a single
    value. ``low`` and ``high`` are the ends of a measured ratio's interval, which every run has of its own;
    ``inside_noise`` is a ratio of times whose quartiles overlapped, from before there were intervals.
    """

    n: int
    mean: float
    half_width: float | None
    low: float | None = None
    high: float | None = None
    inside_noise: bool = False

    @property
    def is_unseen(self) -> bool:
        """Whether it is a ratio whose interval holds 1: a difference that nobody saw."""
        if self.low is None or self.high is None:
            return self.inside_noise
        return holds_no_difference(self.low, self.high)

    @property
    def value(self) -> float:
        """The mean to draw, sort and average with: 1 where no difference was seen."""
        return EQUAL if self.is_unseen else self.mean

    @property
    def words(self) -> str:
        """What is said in place of a figure; empty where there is one."""
        return NO_DIFFERENCE if self.is_unseen else ""

    @property
    def why(self) -> str:
        """What the words rest on."""
        if self.low is None or self.high is None:
            return "the quartiles of both times overlap"
        return f"its 95 % interval, {self.low:.3f} to {self.high:.3f}, holds 1"


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and Student-t interval: t(n-1) x s / sqrt(n), with s the sample standard deviation."""
    n = len(values)
    if n == 1:
        return Estimate(1, values[0], None)
    if min(values) == max(values):  # their mean may be rounded, and would differ from each
        return Estimate(n, values[0], 0.0)
    mean = math.fsum(values) / n
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    return Estimate(n, mean, half_width(n, deviation))


def half_width(n: int, deviation: float) -> float:
    """Half the 95 % interval of the mean of ``n`` values, at least two, by their sample deviation."""
    from scipy.special import stdtrit  # scipy takes a while, and every process of the lab reads this file

    return float(stdtrit(n - 1, 0.5 + CONFIDENCE / 2)) * deviation / math.sqrt(n)


def chance_of_ranks(first: Sequence[float], second: Sequence[float]) -> float:
    """How likely ranks as far apart are where both have one distribution (Mann and Whitney, 1947).

    By the normal approximation, with ties and the correction for continuity: for four values and more.
    """
    n, m = len(first), len(second)
    _, place, counts = np.unique([*first, *second], return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    above = float(ranks[:n].sum()) - n * (n + 1) / 2
    ties = float((counts**3 - counts).sum()) / ((n + m) * (n + m - 1))
    variance = n * m / 12 * (n + m + 1 - ties)
    if variance <= 0:
        return 1.0
    return math.erfc(max(0.0, abs(above - n * m / 2) - 0.5) / math.sqrt(2 * variance))


def with_ends(found: Estimate, lows: Sequence[float], highs: Sequence[float]) -> Estimate:
    """``found`` with an interval as wide as that of its repeats and as the mean one of its runs.

    Runs from before ratios had intervals leave it without one.
    """
    if len(lows) != found.n or len(highs) != found.n:
        return found
    half = found.half_width or 0.0
    low, high = math.fsum(lows) / found.n, math.fsum(highs) / found.n
    return replace(found, low=min(low, found.mean - half), high=max(high, found.mean + half))


def difference(value: float, baseline: float) -> float | None:
    """``value`` relative to the baseline as a fraction; ``None`` where the baseline is zero and ``value`` is
    not.
    """
    if value == baseline:
        return 0.0
    return (value - baseline) / abs(baseline) if baseline else None


def is_better(change: float, lower_is_better: bool | None) -> bool | None:
    """Whether a change is for the better; ``None`` for no change and for figures that only describe."""
    if lower_is_better is None or change == 0:
        return None
    return (change < 0) == lower_is_better


def pareto_front(points: Sequence[tuple[float, float]], lower_is_better: tuple[bool, bool]) -> list[int]:
    """Indices of the points that no other point beats, in the order of the first figure.

    One point beats another where it is at least as good in both figures and better in one; equal points both
    stay.
    """
    signs = np.where(lower_is_better, 1.0, -1.0)
    costs = np.asarray(points, dtype=np.float64).reshape(-1, 2) * signs
    front: list[int] = []
    best = math.inf
    order = np.lexsort((costs[:, 1], costs[:, 0]))
    for index in order:
        equal_to_last = bool(front) and bool((costs[index] == costs[front[-1]]).all())
        if costs[index, 1] < best or equal_to_last:
            front.append(int(index))
            best = float(costs[index, 1])
    return front
