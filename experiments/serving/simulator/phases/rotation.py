"""Answers in a pipeline that nothing disturbs: the same micro-batches go through its stages in turn.

Each of these passes would be an event. Here their times are worked out one after another, exactly as the
events would have them, and booked when something happens or the last of them begins: one that has begun is
not taken back.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiments.serving.interface.step_load import Entry, StepLoad, StepPrice
from experiments.serving.simulator.phases.flight import Flight

#: Turns that are worked out at first, and at most. They double while nothing disturbs them.
FIRST, MOST = 8, 4096


@dataclass(frozen=True)
class Turns:
    """What became of one micro-batch: so many passes ``more`` have begun.

    ``landed`` are those that are through, whose first stage was ``busy`` s with them; ``flight`` is the last
    one, where it is not. At ``last`` the latest of all of them leaves.
    """

    entries: Sequence[Entry]
    more: int
    landed: Flight | None
    busy: float
    flight: Flight | None
    last: float


@dataclass(frozen=True)
class Rotation:
    """``flights`` are inside the pipeline, in the order in which they land, and begin again in that order.

    ``starts`` of the passes after them, and when each of these leaves every stage; ``before``: the same of
    the last one in ``flights``.
    """

    flights: Sequence[Flight]
    starts: Sequence[float]
    leaves: Sequence[tuple[float, ...]]
    before: tuple[float, ...]

    @property
    def until(self) -> float:
        """When the last pass begins."""
        return self.starts[-1]

    def begun(self, now: float) -> int:
        """Passes that began before ``now``."""
        return bisect_left(self.starts, now)

    def stages(self, now: float) -> list[float]:
        """When each stage is free."""
        begun = self.begun(now)
        return list(self.leaves[begun - 1] if begun else self.before)

    def turns(self, now: float) -> list[Turns]:
        """What became of each of ``flights``."""
        return [self._turns_of(place, self.begun(now), now) for place in range(len(self.flights))]

    def _turns_of(self, place: int, begun: int, now: float) -> Turns:
        first, every = self.flights[place], len(self.flights)
        starts, own = self.starts[place:begun:every], self.leaves[place:begun:every]
        ends = [float(first.ends[-1]), *(leaves[-1] for leaves in own)]
        busy = [first.free - first.start, *(one[0] - start for one, start in zip(own, starts, strict=True))]
        count = bisect_right(ends, now)
        landed = replace(first, ends=np.array(ends[:count])) if count else None
        flight = None
        if count < len(ends):
            flight = replace(first, has_landed=False)
            if own:
                entries = grow(first.entries, len(own))
                load, end = StepLoad.of(entries), np.array(ends[-1:])
                flight = Flight(entries, load, starts[-1], own[-1][0], end)
        return Turns(first.entries, len(own), landed, sum(busy[:count]), flight, ends[-1])


def grow(entries: Sequence[Entry], more: int) -> list[Entry]:
    """Return the entries after so many further passes."""
    return [Entry(request, 1, context + more) for request, _, context in entries]


def plan_rotation(
    flights: Sequence[Flight], leaves: Sequence[float], price: StepPrice, turns: int
) -> Rotation | None:
    """Return up to ``turns`` further passes of each of ``flights``, which stand inside the pipeline.

    They end where one would have to wait for a stage until the next one lands, which might then join it.
    """
    if turns < 1:
        return None
    loads = [StepLoad.of(grow(flight.entries, 1)) for flight in flights]
    seconds = [price.seconds(load, turns).tolist() for load in loads]
    lands, before = [float(flight.ends[-1]) for flight in flights], tuple(leaves)
    free, starts, left = list(leaves), list[float](), list[tuple[float, ...]]()
    for turn in range(turns):
        for place, own in enumerate(seconds):
            start = max(lands[place], free[0])
            if len(lands) > 1 and start >= lands[(place + 1) % len(lands)]:
                return Rotation(flights, starts, left, before) if starts else None
            time = start
            for stage, other in enumerate(free):
                time = free[stage] = max(time, other) + own[turn]
            lands[place] = time
            starts.append(start)
            left.append(tuple(free))
    return Rotation(flights, starts, left, before)
