"""Ranges of activations from batches seen beforehand, by five rules.

``min_max``: all that was seen. ``moving_average``: of each batch's extremes, ``m <- m + 0.01 (new - m)``.
``percentile``: the middle 99.99 % of the values. ``mse``: the clip of least squared error over a histogram.
``entropy``: the clip whose quantized histogram diverges least (Migacz, GTC 2017, "8-bit inference with
TensorRT"). The last three keep a histogram over [-limit, limit], 2048 bins on each side of zero; a value
beyond doubles the limit and merges bins two by two, so nothing that was seen is lost or counted twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from experiments.core.errors import BadInput

Floats = npt.NDArray[np.float64]
BINS = 4096
MOMENTUM = 0.01
KEPT = 0.9999
#: Entropy calibration compares with a histogram of this many levels.
LEVELS = 128
#: Fractions of the seen range that are tried as clips.
CLIPS = np.linspace(0.2, 1.0, 161)


@dataclass(frozen=True)
class ClippingRange:
    """Values from ``low`` to ``high`` are kept, those beyond are clipped. Zero always lies inside."""

    low: float
    high: float

    def scale(self, bits: int, symmetric: bool) -> tuple[float, int]:
        """Scale and zero point of codes from -(2^(bits-1)) (symmetric: one more) to 2^(bits-1) - 1."""
        highest = 2 ** (bits - 1) - 1
        if symmetric:
            return max(-self.low, self.high) / highest or 1.0, 0
        lowest = -highest - 1
        step = (self.high - self.low) / (highest - lowest) or 1.0
        return step, int(np.clip(lowest - np.rint(self.low / step), lowest, highest))


class RangeObserver(Protocol):
    """Sees one batch after another, then says the range."""

    def observe(self, values: Floats) -> None: ...

    def range(self) -> ClippingRange: ...


@dataclass
class MinMax:
    low: float = 0.0
    high: float = 0.0

    def observe(self, values: Floats) -> None:
        self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))

    def range(self) -> ClippingRange:
        return ClippingRange(self.low, self.high)


@dataclass
class MovingAverage:
    extremes: tuple[float, float] | None = None

    def observe(self, values: Floats) -> None:
        new = float(values.min()), float(values.max())
        low, high = self.extremes or new
        self.extremes = low + MOMENTUM * (new[0] - low), high + MOMENTUM * (new[1] - high)

    def range(self) -> ClippingRange:
        low, high = self.extremes or (0.0, 0.0)
        return ClippingRange(min(low, 0.0), max(high, 0.0))


@dataclass
class Histogram:
    """Counts of values in ``BINS`` equal bins over [-limit, limit]."""

    limit: float = 0.0
    counts: Floats = field(default_factory=lambda: np.zeros(BINS))

    def observe(self, values: Floats) -> None:
        reach = float(np.abs(values).max())
        self.limit = self.limit or reach
        if not self.limit:  # nothing but zeros so far: no bin has a width yet, and zero is inside every range
            return
        while reach > self.limit:
            self._widen()
        self.counts += np.histogram(values, BINS, (-self.limit, self.limit))[0]

    def _widen(self) -> None:
        merged = self.counts.reshape(-1, 2).sum(1)
        self.counts = np.pad(merged, BINS // 4)
        self.limit *= 2

    @property
    def edges(self) -> Floats:
        return np.linspace(-self.limit, self.limit, BINS + 1)

    @property
    def observed_range(self) -> ClippingRange:
        """The bins that hold anything, widened to zero."""
        filled = np.flatnonzero(self.counts)
        if not len(filled):
            return ClippingRange(0.0, 0.0)
        edges = self.edges
        return ClippingRange(min(float(edges[filled[0]]), 0.0), max(float(edges[filled[-1] + 1]), 0.0))


@dataclass
class Percentile(Histogram):
    def range(self) -> ClippingRange:
        if not self.limit:
            return ClippingRange(0.0, 0.0)
        share = np.cumsum(self.counts) / self.counts.sum()
        tail = (1 - KEPT) / 2
        edges = self.edges
        low = float(edges[np.searchsorted(share, tail, side="right")])
        high = float(edges[np.searchsorted(share, 1 - tail) + 1])
        return ClippingRange(min(low, 0.0), max(high, 0.0))


@dataclass
class LeastSquares(Histogram):
    bits: int = 8
    symmetric: bool = True

    def range(self) -> ClippingRange:
        seen = self.observed_range
        tried = [ClippingRange(seen.low * clip, seen.high * clip) for clip in CLIPS]
        return min(tried, key=self._error)

    def _error(self, clip: ClippingRange) -> float:
        """Squared error of the bins' middles, weighed by their counts."""
        scale, zero = clip.scale(self.bits, self.symmetric)
        middles = (self.edges[:-1] + self.edges[1:]) / 2
        highest = 2 ** (self.bits - 1) - 1
        codes = np.clip(np.rint(middles / scale) + zero, -highest - (not self.symmetric), highest)
        return float(self.counts @ np.square(scale * (codes - zero) - middles))


@dataclass
class Entropy(Histogram):
    def range(self) -> ClippingRange:
        """Symmetric around zero, as the divergence is taken over magnitudes."""
        seen = self.observed_range
        magnitudes = self.counts[BINS // 2 :] + self.counts[: BINS // 2][::-1]
        kept = min(range(LEVELS, len(magnitudes) + 1, 4), key=lambda count: _divergence(magnitudes, count))
        limit = kept * self.limit / (BINS // 2)
        return ClippingRange(max(seen.low, -limit), min(seen.high, limit))


def _divergence(counts: Floats, kept: int) -> float:
    """Kullback-Leibler divergence of the first ``kept`` bins, the rest clipped into the last, from ``LEVELS``
    levels.
    """
    truth = counts[:kept].copy()
    filled = truth > 0
    level = np.arange(kept) * LEVELS // kept
    share = np.bincount(level, truth, LEVELS) / np.maximum(np.bincount(level, filled, LEVELS), 1)
    truth[-1] += counts[kept:].sum()
    ours = np.where(filled, share[level], 0.0)
    if not ours.sum():
        return float("inf")
    p, q = truth / truth.sum(), ours / ours.sum()
    both = p > 0
    return float(np.sum(p[both] * np.log(p[both] / np.maximum(q[both], 1e-12))))


RULES = ("min_max", "moving_average", "percentile", "mse", "entropy")


def observer(rule: str, bits: int = 8, symmetric: bool = True) -> RangeObserver:
    """Return a fresh observer of the rule."""
    if rule == "mse":
        return LeastSquares(bits=bits, symmetric=symmetric)
    plain: dict[str, type[MinMax | MovingAverage | Percentile | Entropy]] = {
        "min_max": MinMax,
        "moving_average": MovingAverage,
        "percentile": Percentile,
        "entropy": Entropy,
    }
    if rule not in plain:
        raise BadInput(f"unknown rule {rule!r}", "calibration", f"one of {RULES}")
    return plain[rule]()
