"""The dynamic program of TeraPipe (Li et al., ICML'21, sections 3.3 and 3.4): lengths of slices for a
pipeline.
"""

from __future__ import annotations

import heapq
import sys
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from experiments.core.budget import Budget

#: Seconds by samples - 1, tokens and context (in steps of the grid). Shape: (samples, steps + 1, steps + 1).
Latency = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Bounded:
    """Least sums when no slice takes longer than a bound: by samples of tokens 0 to steps, and the last slice
    there.
    """

    total: npt.NDArray[np.float64]
    last: npt.NDArray[np.int64]

    def lengths(self, samples: int) -> list[int]:
        found: list[int] = []
        at = self.total.shape[1] - 1
        while at:
            found.append(int(self.last[samples - 1, at]))
            at -= found[-1]
        return found[::-1]


def best_slicing(
    latency: Latency, samples: int, stages: int, gap: float = 0.0, budget: Budget | None = None
) -> list[tuple[int, list[int]]]:
    """Return groups of samples and the slice lengths of each, least in predicted seconds.

    Exact for ``gap`` 0; else bounds that differ by less than ``gap`` seconds are tried as one, which costs at
    most ``(stages - 1) * gap``. Ties go to the smaller maximum, then to fewer samples and shorter last
    slices. The least sum falls as the bound rises, so a range of bounds costs at least the sum at its end and
    the maximum at its start: the cheapest range is halved until none can be better than what was found.
    ``budget`` bounds the sums that are compared; where it ends before any bound held, the slicing with the
    least sum is taken.
    """
    budget = budget or Budget(sys.maxsize)
    unbounded = _over_tokens(latency, np.inf)
    least, sizes = _over_batch(unbounded, samples)
    found = _Slicings(latency, samples, stages, [(size, unbounded.lengths(size)) for size in sizes])
    bounds = _bounds(latency, gap)
    ranges = [(0.0, 0, len(bounds) - 1, least)]
    while ranges:
        cheapest, first, last, total = heapq.heappop(ranges)
        if cheapest >= found.best[0] or not budget.take(_sums(latency)):
            break
        middle = (first + last) // 2
        at_middle = found.try_bound(bounds[middle])
        for begin, end, sum_at_end in ((first, middle - 1, at_middle), (middle + 1, last, total)):
            if begin <= end and np.isfinite(sum_at_end):
                floor = sum_at_end + (stages - 1) * max(bounds[begin] - gap, 0.0)
                heapq.heappush(ranges, (floor, begin, end, sum_at_end))
    return found.groups


class _Slicings:
    """The best of the slicings that were tried: ``best`` is its predicted seconds and longest slice."""

    def __init__(
        self, latency: Latency, samples: int, stages: int, groups: list[tuple[int, list[int]]]
    ) -> None:
        self.latency, self.samples, self.stages, self.groups = latency, samples, stages, groups
        self.best = (np.inf, np.inf)

    def try_bound(self, bound: float) -> float:
        """Return the least sum where no slice takes longer than ``bound``."""
        bounded = _over_tokens(self.latency, bound)
        total, sizes = _over_batch(bounded, self.samples)
        if np.isfinite(total) and total < self.best[0]:
            groups = [(size, bounded.lengths(size)) for size in sizes]
            score = slicing_seconds(self.latency, groups, self.stages), bound
            if score < self.best:
                self.best, self.groups = score, groups
        return total


def _sums(latency: Latency) -> int:
    """Sums that one bound takes: every last slice at every token, for each number of samples."""
    samples, steps = latency.shape[0], latency.shape[1] - 1
    found: int = samples * steps * (steps + 1) // 2
    return found


def slicing_seconds(latency: Latency, groups: list[tuple[int, list[int]]], stages: int) -> float:
    """Return sum(t) + (stages - 1) max(t)."""
    times = [
        float(latency[samples - 1, length, sum(lengths[:index])])
        for samples, lengths in groups
        for index, length in enumerate(lengths)
    ]
    return sum(times) + (stages - 1) * max(times)


def _bounds(latency: Latency, gap: float) -> list[float]:
    """Times that a slice can take, smallest first, of those within a gap the largest."""
    steps = latency.shape[1] - 1
    tokens, context = np.indices((steps + 1, steps + 1))
    values = np.unique(latency[:, (tokens > 0) & (tokens + context <= steps)])
    if gap:
        values = values[np.append(np.diff(np.floor(values / gap)) > 0, True)]
    found: list[float] = values.tolist()
    return found


def _over_tokens(latency: Latency, bound: float) -> _Bounded:
    """S(i) = min over k of S(i - k) + t(k, i - k), for all numbers of samples at once."""
    allowed = np.where(latency <= bound, latency, np.inf)
    samples, steps = latency.shape[0], latency.shape[1] - 1
    total, last = np.zeros((samples, steps + 1)), np.zeros((samples, steps + 1), np.int64)
    for end in range(1, steps + 1):
        lengths = np.arange(1, end + 1)
        sums = total[:, end - lengths] + allowed[:, lengths, end - lengths]
        last[:, end] = lengths[sums.argmin(axis=1)]
        total[:, end] = sums.min(axis=1)
    return _Bounded(total, last)


def _over_batch(bounded: _Bounded, samples: int) -> tuple[float, list[int]]:
    """Least sum over ways to split ``samples`` in groups, and the sizes of these."""
    whole = bounded.total[:, -1].tolist()
    least, size = [0.0], [0]
    for count in range(1, samples + 1):
        choices = ((least[count - b] + whole[b - 1], b) for b in range(1, min(count, len(whole)) + 1))
        cost, chosen = min(choices)
        least.append(cost)
        size.append(chosen)
    sizes, left = [], samples
    while left and np.isfinite(least[samples]):
        sizes.append(size[left])
        left -= size[left]
    return least[samples], sizes
