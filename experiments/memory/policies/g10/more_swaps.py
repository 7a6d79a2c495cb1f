"""More swaps in addition to those that a planner picked, until the step fits: the largest tensor idle at the
fullest op.
"""

from __future__ import annotations

import numpy as np

from experiments.memory.interface import MemoryMachine
from experiments.memory.planning.swaps import (
    Gap,
    TensorSwap,
    UnstalledClock,
    earliest_return,
    gaps_of,
    lighten,
    load_under,
)
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Step


def until_it_fits(
    step: Step, picked: list[TensorSwap], machine: MemoryMachine, room: int, uses_host: bool
) -> list[TensorSwap]:
    """``picked`` and more swaps, where the load with every fetch as late as may be is still over ``room``.

    To the host while it has free bytes, being faster, then to storage; back so early that twice the copy's
    time hides.
    """
    swaps = [TensorSwap(s.gap, s.gap.before, s.tier) for s in picked]
    load, on_host = load_under(step, swaps), _held_by_host(step, swaps)
    taken = {(swap.gap.tensor, swap.gap.after) for swap in swaps}
    idle = [gap for gap in gaps_of(step) if (gap.tensor, gap.after) not in taken]
    clock, more = UnstalledClock(step), []
    while len(load) and load.max() > room:
        gap = _largest_idle(idle, load)
        if gap is None:
            break
        idle.remove(gap)
        away = slice(gap.after + 1, gap.before)
        free = machine.host_bytes - int(on_host[away].max(initial=0))
        to_host = machine.storage_bytes <= 0 or (uses_host and gap.bytes <= free)
        tier = "host" if to_host else "storage"
        lighten(load, TensorSwap(gap, gap.before, tier))
        early = clock.walk_back(gap.before, 2 * machine.back_time(gap.bytes, tier), earliest_return(gap))
        more.append(TensorSwap(gap, early, tier))
        on_host[away] += gap.bytes if to_host else 0
    return [*picked, *more]


def _held_by_host(step: Step, swaps: list[TensorSwap]) -> Ints:
    """Bytes in the host while each op runs."""
    freed = np.zeros(len(step.ops), np.int64)
    for swap in swaps:
        if swap.tier == "host":
            lighten(freed, swap)
    return -freed


def _largest_idle(gaps: list[Gap], load: Ints) -> Gap | None:
    """The largest tensor that no op uses at the fullest op; among equals the one idle longest."""
    fullest = int(np.argmax(load))
    found = [gap for gap in gaps if gap.after < fullest < gap.before]
    return max(found, key=lambda gap: (gap.bytes, gap.before - gap.after), default=None)
