"""How much faster one thing is than another: the median of ratios taken pair by pair, with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from experiments.core.differences import EQUAL, INTERVALS, holds_no_difference

CONFIDENCE = 0.95
#: Samples drawn from the pairs, with replacement, for the interval of their median.
RESAMPLES = 5000
#: Two copies of one thing differ by so much, however often they are timed: their buffers lie in other places.
#: Of 20 pairs of equal loops on two threads the furthest apart differed by 2.1 % (decision 0139).
PLACEMENT = 0.03


@dataclass(frozen=True)
class Ratio:
    """The median of ``pairs`` ratios with the ends of its 95 % interval, ``PLACEMENT`` included."""

    median: float
    low: float
    high: float
    pairs: int

    @property
    def is_seen(self) -> bool:
        """Whether the two differ: 1 lies outside of the interval."""
        return not holds_no_difference(self.low, self.high)

    @property
    def side(self) -> int:
        """1 or -1 where the interval lies above or below 1, 0 where it holds 1."""
        return (self.low > EQUAL) - (self.high < EQUAL)


def confirm(first: Ratio, again: Ratio, both: Ratio) -> Ratio:
    """Return what two series of pairs say, and ``both`` of them together.

    One interval in twenty of equal things leaves out 1. A difference of the first series that the second does
    not have on the same side is such a one: the interval then spans both series.
    """
    if first.side == again.side:
        return both
    return replace(both, low=min(first.low, again.low), high=max(first.high, again.high))


def ratio_of(ratios: Sequence[float], seed: int) -> Ratio:
    """Return the median of ``ratios`` with its bootstrap interval, drawn from ``seed``.

    The bootstrap of a median is too narrow where there are few pairs (of seven, one interval in eight misses
    the truth), so the interval is never narrower than the two order statistics between which the median lies
    whatever the distribution is. At each end ``PLACEMENT`` is added, which no number of pairs averages out.
    """
    values = np.asarray(ratios, dtype=np.float64)
    drawn = stats.bootstrap(
        (values,),
        np.median,
        confidence_level=CONFIDENCE,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    ranked: Any = stats.quantile_test(values, p=0.5)
    ends = [drawn.confidence_interval, ranked.confidence_interval(CONFIDENCE)]
    # Few pairs leave an end open: then it is the least or the greatest of them.
    low = min(np.nan_to_num(one.low, nan=values.min()) for one in ends)
    high = max(np.nan_to_num(one.high, nan=values.max()) for one in ends)
    low, high = low / (1 + PLACEMENT), high * (1 + PLACEMENT)
    return Ratio(float(np.median(values)), float(low), float(high), len(values))


def speedup_metrics(ratio: Ratio, name: str = "speedup") -> dict[str, float]:
    """Return a speed-up as metrics of a run, the ends of its interval among them."""
    low, high = INTERVALS[name]
    return {name: ratio.median, low: ratio.low, high: ratio.high}
