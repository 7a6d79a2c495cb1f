"""Waiting jobs in an order of priority that finds the first ones that fit without looking at those that do
not.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

Key = tuple[float, ...]
#: The key of a job and, last, its number.
Ranked = tuple[Any, ...]


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


class RankedJobs:
    """Waiting jobs for policies that rank them together with running ones.

    A sorted list for each number of GPUs wanted. ``key`` orders jobs, smallest first, equal keys by job
    number; it must not change while a job waits.
    """

    def __init__(self) -> None:
        self._by_size: dict[int, list[Ranked]] = {}
        self._where: dict[int, tuple[int, Ranked]] = {}

    def __bool__(self) -> bool:
        return bool(self._where)

    def add(self, job: int, gpus: int, key: Key) -> None:
        ranked = (*key, job)
        insort(self._by_size.setdefault(gpus, []), ranked)
        self._where[job] = (gpus, ranked)

    def remove(self, job: int) -> None:
        gpus, ranked = self._where.pop(job)
        row = self._by_size[gpus]
        del row[bisect_left(row, ranked)]

    def merged_with(self, running: Sequence[Ranked]) -> Iterator[int]:
        """All of them and ``running`` (in order) in one order."""
        return (job for *_, job in heapq.merge(running, *self._by_size.values()))

    def choose(
        self, running: Sequence[Ranked], sizes: Sequence[int], room: float, ahead: float = 0.0
    ) -> tuple[list[int], list[int]]:
        """Go through ``running`` (in order) and the waiting jobs, and keep those that fit into ``room`` GPUs.

        ``sizes`` is what each of ``running`` has; all of them fit by themselves. ``ahead`` is added to the
        first part of a waiting job's key where it meets those of running ones. A size that does not fit once
        is not looked at again: room only shrinks. Returned are the waiting jobs that fit, and the running
        ones that do not any more.
        """
        winners: list[int] = []
        losers: list[int] = []
        rows, place = self._by_size, 0
        heads = [(row[0], size, 0) for size, row in rows.items() if row and size <= room]
        heapq.heapify(heads)
        while heads and room >= 1:
            head, size, at = heads[0]
            met = (head[0] + ahead, *head[1:]) if ahead else head
            until = bisect_left(running, met, place)
            room = _keep(running, sizes, slice(place, until), room, losers)
            place = until
            if size <= room:
                room -= size
                winners.append(head[-1])
                at += 1
            if size <= room and at < len(rows[size]):
                heapq.heapreplace(heads, (rows[size][at], size, at))
            else:
                heapq.heappop(heads)
        _keep(running, sizes, slice(place, len(running)), room, losers)
        return winners, losers


def _keep(
    running: Sequence[Ranked], sizes: Sequence[int], some: slice, room: float, losers: list[int]
) -> float:
    """Choose ``some`` of ``running`` that fit, in order; what room is left then."""
    wanted = sum(sizes[some])
    if wanted <= room:
        return room - wanted
    for ranked, size in zip(running[some], sizes[some], strict=True):
        if size <= room:
            room -= size
        else:
            losers.append(ranked[-1])
    return room


class RunningOrder:
    """Running jobs by a key that stays while they run, smallest first, equal keys by job number."""

    def __init__(self) -> None:
        self.ranked: list[Ranked] = []
        self.sizes: list[int] = []
        self._keys: dict[int, Ranked] = {}

    def add(self, job: int, gpus: int, key: Key) -> None:
        ranked = (*key, job)
        place = bisect_left(self.ranked, ranked)
        self.ranked.insert(place, ranked)
        self.sizes.insert(place, gpus)
        self._keys[job] = ranked

    def discard(self, jobs: Iterable[int]) -> None:
        """These jobs do not run any more, if they did."""
        for job in jobs:
            ranked = self._keys.pop(job, None)
            if ranked is not None:
                place = bisect_left(self.ranked, ranked)
                del self.ranked[place], self.sizes[place]
