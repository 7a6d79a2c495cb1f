"""Minimum satisfactory shares: the fewest GPUs, slot by slot, with which a job meets its deadline.

What earlier deadlines reserve is taken from a step function of free GPUs. For a job the quotas 1, 2, 4, ...
are tried: filled backwards from the deadline with at most the quota in each interval, until its work fits;
intervals before that have the quota before.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from experiments.workloads.profiles.throughput_table import Levels

#: Sums of steps are not exact: work within this part of what is to be done is done.
SLACK = 1e-9


class Reservation(NamedTuple):
    """``gpus`` devices from ``start`` to ``end`` (s), doing ``speed`` steps a second."""

    start: float
    end: float
    gpus: int
    speed: float


#: Of one job, in order of time; between them it has none.
Share = tuple[Reservation, ...]


class FreeTime:
    """GPUs free from each of ``times`` on; changes are at whole slots, counted from ``origin``."""

    def __init__(self, now: float, origin: float, slot: float, total: int) -> None:
        self.origin, self.slot = origin, slot
        self.times = [now]
        self.free = [total]

    def aligned(self, time: float) -> float:
        """The first whole slot that is not before ``time``."""
        return self.origin + math.ceil((time - self.origin) / self.slot - SLACK) * self.slot

    def cut(self, time: float) -> int:
        """Let an interval begin at ``time``; its place."""
        place = bisect_left(self.times, time)
        if place and (place == len(self.times) or self.times[place] != time):
            self.times.insert(place, time)
            self.free.insert(place, self.free[place - 1])
        return place

    def reserve(self, share: Share) -> None:
        """Take what a job reserves, each time to the end of the slot."""
        for part in share:
            first = self.cut(part.start)
            for place in range(first, self.cut(self.aligned(part.end))):
                self.free[place] -= part.gpus
        self._merge()

    def _merge(self) -> None:
        """Leave out times at which nothing changes."""
        changes = [place for place, free in enumerate(self.free) if not place or free != self.free[place - 1]]
        self.times = [self.times[place] for place in changes]
        self.free = [self.free[place] for place in changes]

    def intervals(self, until: float) -> list[tuple[float, float, int]]:
        """Begin, end and free GPUs of all intervals up to ``until``; it may lie within the last slot."""
        ends = [*self.times[1:], math.inf]
        return [
            (begin, min(end, until), free)
            for begin, end, free in zip(self.times, ends, self.free, strict=True)
            if begin < until
        ]


def minimum_share(left: float, deadline: float, levels: Levels, free: FreeTime) -> Share | None:
    """The smallest share that does ``left`` steps by ``deadline``; ``None`` where there is none."""
    free.cut(free.aligned(deadline))
    intervals = free.intervals(deadline)
    for place in range(len(levels)):
        first = _first_interval(left, levels[: place + 1], intervals)
        if first is not None:
            quotas = [levels[: place + (number >= first)] for number in range(len(intervals))]
            return follow(left, intervals, quotas)
    return None


def follow(
    left: float, intervals: Sequence[tuple[float, float, int]], quotas: Sequence[Levels]
) -> Share | None:
    """What a job holds with so many GPUs at most in each interval, until its work is done."""
    share, enough = list[Reservation](), left * SLACK
    for (begin, end, free), levels in zip(intervals, quotas, strict=True):
        gpus, speed = _largest(levels, free)
        if not gpus:
            continue
        done = (end - begin) * speed
        ends = min(end, begin + left / speed)
        if share and share[-1].end == begin and share[-1].gpus == gpus:
            share[-1] = share[-1]._replace(end=ends)
        else:
            share.append(Reservation(begin, ends, gpus, speed))
        left -= done
        if left <= enough:
            return tuple(share)
    return None


def steps_by(share: Share, now: float, deadline: float) -> float:
    """What a job does with its share from ``now`` until ``deadline``."""
    return sum(max(0.0, min(part.end, deadline) - max(part.start, now)) * part.speed for part in share)


def _first_interval(left: float, levels: Levels, intervals: Sequence[tuple[float, float, int]]) -> int | None:
    """The latest interval from which on the last of ``levels`` is enough."""
    enough = left * SLACK
    for number in range(len(intervals) - 1, -1, -1):
        begin, end, free = intervals[number]
        gpus, speed = _largest(levels, free)
        if gpus:
            left -= (end - begin) * speed
        if left <= enough:
            return number
    return None


def _largest(levels: Levels, free: int) -> tuple[int, float]:
    place = bisect_right(levels, (free, math.inf))
    return levels[place - 1] if place else (0, 0.0)
