"""How the release reserves GPUs for one job, and what of the time line it leaves to others.

From the deadline backwards with the smallest quota of GPUs that is enough, the quota before in earlier
intervals; where none is, with the largest to the deadline and on from there as many as are free. A job may
hold a number of GPUs told until something changes next: so the release tries a larger level.

Kept as the release has it: a job without enough time has, past all that is reserved, the GPUs told, and GPU
time is counted to the next change of the time line, not to the job's end.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from experiments.workloads.profiles.throughput_table import Levels

#: GPUs from each time on, in order of time.
Steps = dict[float, int]
#: Sums of steps are not exact.
SLACK = 1e-9


@dataclass(frozen=True)
class Wanted:
    """``left`` steps of a job by its ``deadline`` (s), at the ``levels`` that it may have."""

    left: float
    deadline: float
    levels: Levels


@dataclass(frozen=True)
class JobPlan:
    """The ``gpus`` of a job from each time on, when it ``ends``, and when that is ``noticed``."""

    gpus: Mapping[float, int]
    ends: float
    noticed: float
    in_time: bool

    def gpu_time(self) -> float:
        """GPU seconds that are reserved."""
        spans = pairwise((*self.gpus, self.noticed))
        return sum(gpus * (end - begin) for gpus, (begin, end) in zip(self.gpus.values(), spans, strict=True))


class Reserving:
    """One job on a time line of ``free`` GPUs, which begins at ``now``."""

    def __init__(
        self, wanted: Wanted, free: Mapping[float, int], now: float, slot: float, total: int
    ) -> None:
        self.wanted, self.before, self.now, self.slot, self.total = wanted, free, now, slot, total
        self.due = self._align(wanted.deadline)
        self.free: Steps = dict(free)
        if self.due >= now:
            self.free = cut(self.free, (self.due,))
        self.held: Steps = {now: 0}
        self.left, self.start = wanted.left, now

    def plan(self, first: int | None = None) -> tuple[JobPlan, Steps]:
        """The job's plan, with ``first`` GPUs until something changes, and what stays free."""
        levels = self.wanted.levels
        if first is not None:
            found = self._hold(dict(levels)[first], first)
            if found is not None:
                return found
        self.held = {**dict.fromkeys((time for time in self.free if time < self.due), 0), **self.held}
        for place in range(len(levels)):
            since = self._enough_since(levels[: place + 1])
            if since is not None:
                found = self._fill(levels[:place], levels[: place + 1], since)
                assert found is not None, "what is enough backwards is enough forwards"
                return found
        return self._fill((), levels, self.start) or self._go_on(first)

    def _hold(self, speed: float, gpus: int) -> tuple[JobPlan, Steps] | None:
        """Hold ``gpus`` until the next change; the whole plan if the job ends before it."""
        later = min((time for time in self.before if time > self.now), default=self.due)
        ends = self.now + math.ceil(self.left / speed)
        self._take(self.now, gpus)
        steps = ((self.wanted.deadline if later == self.due else later) - self.now) * speed
        in_time = later >= self._align(ends) and self.wanted.deadline >= ends
        if in_time or later <= self.now or steps >= self.left:
            return self._end(self.now, speed)
        self.left -= steps
        self.start = later
        self.held[later] = 0
        return None

    def _enough_since(self, levels: Levels) -> float | None:
        """The latest time from which on at most the last of ``levels`` is enough."""
        end, left = self.wanted.deadline, self.left
        for begin in reversed([time for time in self.free if self.start <= time < self.due]):
            gpus, speed = _largest(levels, self.free[begin])
            left -= (end - begin) * speed
            if gpus and left <= 0:
                return begin
            end = begin
        return None

    def _fill(self, less: Levels, levels: Levels, since: float) -> tuple[JobPlan, Steps] | None:
        """Take ``less`` before ``since`` and ``levels`` from then on; the plan if that meets the deadline."""
        times = [time for time in self.free if self.start <= time <= self.due]
        for begin, end in pairwise(times):
            gpus, speed = _largest(levels if begin >= since else less, self.free[begin])
            self._take(begin, gpus)
            steps = ((self.wanted.deadline if end == self.due else end) - begin) * speed
            if gpus and steps >= self.left * (1 - SLACK):
                return self._end(begin, speed)
            self.left -= steps
        return None

    def _go_on(self, first: int | None) -> tuple[JobPlan, Steps]:
        """Past the deadline: all that is free, until the job is done."""
        levels, begin = self.wanted.levels, max(self.due, self.start)
        for end in [time for time in self.free if time > begin]:
            gpus, speed = _largest(levels, self.free[begin])
            self._take(begin, gpus)
            if gpus and (end - begin) * speed >= self.left:
                return self._end(begin, speed)
            self.left -= (end - begin) * speed
            begin = end
        gpus, speed = _largest(levels, self.total if first is None else first)
        self.held[begin], self.free[begin] = gpus, self.total - gpus
        return self._end(begin, speed)

    def _take(self, time: float, gpus: int) -> None:
        self.held[time] = gpus
        self.free[time] -= gpus

    def _end(self, begin: float, speed: float) -> tuple[JobPlan, Steps]:
        """The plan of a job that does what is left from ``begin`` on."""
        ends = begin + math.ceil(self.left / speed)
        noticed = self._align(ends)
        if noticed not in self.before:
            self.free[noticed] = value_at(self.before, noticed, self.total)
        free = drop_repeats(self.free)
        return JobPlan(drop_repeats(self.held), ends, noticed, ends <= self.wanted.deadline), free

    def _align(self, time: float) -> float:
        return self.now + math.ceil((time - self.now) / self.slot) * self.slot


def value_at(steps: Mapping[float, int], time: float, default: int = 0) -> int:
    """GPUs just before and at ``time``."""
    found = default
    for begin, gpus in steps.items():
        if begin > time:
            break
        found = gpus
    return found


def cut(steps: Mapping[float, int], times: Iterable[float]) -> Steps:
    """Steps with one that begins at each of ``times``."""
    more = {time: value_at(steps, time) for time in times if time not in steps}
    return dict(sorted({**steps, **more}.items()))


def drop_repeats(steps: Mapping[float, int]) -> Steps:
    """Steps in order of time, without those at which nothing changes."""
    found: Steps = {}
    last = None
    for time in sorted(steps):
        if steps[time] != last:
            found[time] = last = steps[time]
    return found


def give_back(free: Mapping[float, int], plan: JobPlan) -> Steps:
    """What is free without a plan."""
    more = cut(free, (*plan.gpus, plan.noticed))
    return drop_repeats(
        {
            time: gpus + (value_at(plan.gpus, time) if time < plan.noticed else 0)
            for time, gpus in more.items()
        }
    )


def _largest(levels: Levels, free: int) -> tuple[int, float]:
    place = bisect_right(levels, (free, math.inf))
    return levels[place - 1] if place else (0, 0.0)
