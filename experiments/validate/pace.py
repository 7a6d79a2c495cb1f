"""The pace of a shared host: the same small work again and again around a cell.

What a host's other guests do to a run is no error of what foretold it. So a cell is repeated where the host
changed its pace meanwhile, which this work says and the cell itself does not: nothing is chosen by its
result.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from experiments.core.progress import Progress, part
from experiments.validate.cells import ValidationCell

#: Slower by no more than this share at one look than at another, the host was steady.
STEADY = 0.05
#: How often a cell is made at most; the steadiest of these is kept.
TRIES = 2
#: How long a look takes (s): spikes of milliseconds are within, and are a part of the pace.
LOOK = 2.0


class Pace:
    """What ``work`` took at each look (s by ``clock``, the mean of its repetitions)."""

    def __init__(self, work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> None:
        self.work, self.clock = work, clock
        self.seen: list[float] = []

    def look(self) -> None:
        began, times = self.clock(), 0
        while self.clock() < began + LOOK:
            self.work()
            times += 1
        self.seen.append((self.clock() - began) / times)

    @property
    def change(self) -> float:
        """By which share the slowest look was slower than the fastest."""
        return max(self.seen) / min(self.seen) - 1 if self.seen else 0.0


def steadiest(
    make: Callable[[Pace, Progress], ValidationCell], new: Callable[[], Pace], progress: Progress
) -> ValidationCell:
    """The cell that ``make`` makes, which looks at a ``new`` pace as it goes, until the host was steady.

    Its facts say by how much the pace changed, and how often it was made.
    """
    found: list[tuple[float, ValidationCell]] = []
    while not found or (found[-1][0] > STEADY and len(found) < TRIES):
        pace, turn = new(), len(found)
        cell = make(pace, part(progress, turn / TRIES, (turn + 1) / TRIES))
        found.append((pace.change, cell))
    change, cell = min(found, key=lambda one: one[0])
    return replace(cell, facts={**cell.facts, "pace_change": change, "tries": len(found)})
