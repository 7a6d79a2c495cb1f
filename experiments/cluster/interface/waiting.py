"""Waiting jobs in an order of priority that finds the first one that fits without looking at those that do
not.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

Key = tuple[float, ...]


class WaitingJobs:
    """One heap for each number of GPUs wanted: jobs that want equally many fit or do not fit together.

    ``key`` orders jobs, smallest first, equal keys by job number; it must not change while a job waits.
    """

    def __init__(self) -> None:
        self._by_size: dict[int, list[tuple[Key, int]]] = {}

    def add(self, job: int, gpus: int, key: Key) -> None:
        heapq.heappush(self._by_size.setdefault(gpus, []), (key, job))

    def first(self, fits: Callable[[int], bool] = lambda gpus: True) -> tuple[Key, int] | None:
        """The first job whose number of GPUs ``fits``, with its key."""
        heads = [heap[0] for gpus, heap in self._by_size.items() if heap and fits(gpus)]
        return min(heads, default=None)

    def remove_first(self, gpus: int) -> None:
        """Take out the first of the jobs that want ``gpus``."""
        heapq.heappop(self._by_size[gpus])
