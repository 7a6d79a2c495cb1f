"""Waiting jobs in an order of priority that finds the first ones that fit without looking at those that do
not.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
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

    def choose(self, running: Sequence[Ranked], gpus: Sequence[int], room: float) -> dict[int, None]:
        """Go through ``running`` (in order) and the waiting jobs and keep those that fit into ``room`` GPUs.

        ``gpus`` is what each job wants; all of ``running`` fit by themselves. A size that does not fit once
        is not looked at again: room only shrinks.
        """
        chosen: dict[int, None] = {}
        rows, place = self._by_size, 0
        heads = [(row[0], size, 0) for size, row in rows.items() if row and size <= room]
        heapq.heapify(heads)
        while heads and room >= 1:
            head, size, at = heads[0]
            until = bisect_left(running, head, place)
            room = _keep(running[place:until], gpus, room, chosen)
            place = until
            if size <= room:
                room -= size
                chosen[head[-1]] = None
                at += 1
            if size <= room and at < len(rows[size]):
                heapq.heapreplace(heads, (rows[size][at], size, at))
            else:
                heapq.heappop(heads)
        _keep(running[place:], gpus, room, chosen)
        return chosen


def _keep(running: Sequence[Ranked], gpus: Sequence[int], room: float, chosen: dict[int, None]) -> float:
    """Choose those of ``running`` that fit, in order; what room is left then."""
    jobs: list[int] = [ranked[-1] for ranked in running]
    wanted = sum([gpus[job] for job in jobs])
    if wanted <= room:
        chosen.update(dict.fromkeys(jobs))
        return room - wanted
    for job in jobs:
        if gpus[job] <= room:
            room -= gpus[job]
            chosen[job] = None
    return room
