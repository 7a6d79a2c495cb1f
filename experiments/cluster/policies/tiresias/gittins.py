"""The Gittins index of a job by its attained service, from the services of jobs that have ended.

``P(S - a <= D | S > a) / E[min(S - a, D) | S > a]``: the chance that a job which had service ``a`` ends
within the next ``D``, over the service that this takes. Nothing else than ended jobs is known.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate

#: Ended jobs change the distribution once they are this part of it.
NEWS = 1 / 32


class Gittins:
    """The empirical distribution of services (GPU s)."""

    def __init__(self, services: Iterable[float] = ()) -> None:
        self._sorted = sorted(services)
        self._news: list[float] = []
        self._sums: list[float] | None = None

    def learn(self, services: Iterable[float]) -> None:
        """Take in jobs that have ended."""
        self._news += services
        if self._news and len(self._news) >= NEWS * len(self._sorted):
            self._sorted = sorted(self._sorted + self._news)
            self._news, self._sums = [], None

    def index(self, attained: float, quantum: float) -> float:
        """Per GPU s; 0 where no job is known that had more than ``attained``."""
        first = bisect_right(self._sorted, attained)
        longer = len(self._sorted) - first
        if not longer:
            return 0.0
        last = bisect_right(self._sorted, attained + quantum)
        within = last - first
        taken = self._sum(first, last) - within * attained + (longer - within) * quantum
        return within / taken if taken else float("inf")

    def release_index(self, attained: float, quantum: float) -> float:
        """The same as the authors' simulator computes it, times a million.

        It sums whole services instead of what is left of them, never counts the longest one as ending, and
        rounds chance and service to five digits and the index to four.
        """
        if not self._sorted or attained > self._sorted[-1] - 1:
            return 0.0
        count = len(self._sorted)
        first = bisect_right(self._sorted, attained)
        beyond = attained + quantum > self._sorted[-1] - 1
        last = count - 1 if beyond else bisect_right(self._sorted, attained + quantum)
        longer = count - first
        chance = round((last - first) / longer, 5)
        taken = round((self._sum(first, last) + quantum * (count - last)) / longer, 5)
        return round(chance * 1e6 / taken, 4)

    def _sum(self, first: int, last: int) -> float:
        """The sum of a range of services."""
        if self._sums is None:
            self._sums = [0.0, *accumulate(self._sorted)]
        return self._sums[last] - self._sums[first]
