"""ElasticFlow's elastic EDF: each job takes all that its table goes to, from now on until it is done.

Free GPUs are a step function of time with changes at whole slots after now. Kept as the release has it: where
a job ends within an interval, what is free from the next whole slot on is what was free before the job, also
where an earlier change stands at that very time and is overwritten.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

#: GPUs and steps per second on them.
Level = tuple[int, float]


class FreeGpus:
    """``free`` GPUs from each of ``times`` on; past the last of them all ``total`` are."""

    def __init__(self, now: float, slot: float, total: int) -> None:
        self.now, self.slot, self.total = now, slot, total
        self.times = [now]
        self.free = [total]

    def aligned(self, time: float) -> float:
        """The next whole slot after now."""
        return self.now + math.ceil((time - self.now) / self.slot) * self.slot

    def replace(self, free: dict[float, int]) -> None:
        """Take another step function; times at which nothing changes are left out."""
        self.times, self.free = [], []
        for time in sorted(free):
            if not self.free or free[time] != self.free[-1]:
                self.times.append(time)
                self.free.append(free[time])


def plan_greedily(left: float, levels: Sequence[Level], profile: FreeGpus) -> tuple[int, float]:
    """Take as many GPUs as there are for ``left`` steps; return how many now, and when it ends."""
    free = dict(zip(profile.times, profile.free, strict=True))
    taken = []
    for place, begin in enumerate(profile.times):
        end = profile.times[place + 1] if place + 1 < len(profile.times) else math.inf
        gpus, speed = _largest(levels, profile.free[place] if end < math.inf else profile.total)
        taken.append(gpus)
        if not gpus:
            continue
        ends = math.ceil(begin + left / speed)
        if end >= ends:
            _end_within(free, begin, ends, gpus, profile, last=end == math.inf)
            return taken[0], ends
        left -= (end - begin) * speed
        free[begin] -= gpus
    raise AssertionError("the last interval never ends")


def _end_within(
    free: dict[float, int], begin: float, ends: float, gpus: int, profile: FreeGpus, *, last: bool
) -> None:
    """Write down that a job holds ``gpus`` from ``begin`` until the slot after ``ends``."""
    before = profile.total if last else free[begin]
    free[begin] = before - gpus
    if last or ends not in free:
        free[profile.aligned(ends)] = before
    profile.replace(free)


def _largest(levels: Sequence[Level], free: int) -> Level:
    """The largest level that is free."""
    return max((level for level in levels if level[0] <= free), default=(0, 0.0))
