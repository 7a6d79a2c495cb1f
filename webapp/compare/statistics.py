"""The statistics of a comparison: repeats folded into an interval, differences from a baseline, the Pareto
front.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """Repeats of one figure. ``half_width`` is half the 95 % interval of the mean, ``None`` for a single
    value.
    """

    n: int
    mean: float
    half_width: float | None


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and Student-t interval: t(n-1) x s / sqrt(n), with s the sample standard deviation."""
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return Estimate(1, mean, None)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    quantile = float(stdtrit(n - 1, 0.5 + CONFIDENCE / 2))
    return Estimate(n, mean, quantile * deviation / math.sqrt(n))


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
