"""When the copies of swaps run on two lanes if computation never waits: out as soon as possible, in as late
as possible.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.memory.interface import MemoryMachine
from experiments.memory.planning.swaps import Gap, UnstalledClock


def copy_out_ends(gaps: Sequence[Gap], clock: UnstalledClock, machine: MemoryMachine) -> dict[Gap, float]:
    """Return when the copy out of each gap has ended.

    Copies run in the order of their starts, each when its use is over and the lane free.
    """
    free, found = 0.0, dict[Gap, float]()
    for gap in sorted(gaps, key=lambda gap: (gap.after, gap.tensor)):
        start = float(clock.start[gap.after + 1])
        found[gap] = free = max(free, start) + machine.out_time(gap.bytes)
    return found


def copy_back_starts(gaps: Sequence[Gap], clock: UnstalledClock, machine: MemoryMachine) -> dict[Gap, float]:
    """Return when the copy back of each gap must start.

    Those needed last come first, each so that it ends when it is needed or, if earlier, when the next one
    starts; before zero where it comes too late.
    """
    following, found = float("inf"), dict[Gap, float]()
    for gap in sorted(gaps, key=lambda gap: (-gap.before, gap.tensor)):
        end = min(following, float(clock.start[gap.before]))
        found[gap] = following = end - machine.back_time(gap.bytes)
    return found
