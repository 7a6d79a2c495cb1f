"""G10's choice for a device as it is: the load is what is live, and what is planned fits."""

from __future__ import annotations

import numpy as np

from experiments.memory.interface import DeviceView, Machine, MemoryPlan, Pool
from experiments.memory.interface.paged import PAGE, PagedStep
from experiments.memory.planning.migrations import Planner, Rules, Taken
from experiments.memory.planning.swaps import Gap, Swap, gaps_of, lighten, load_under, moves_of, within
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Step

#: The shares of the capacity that the planner tries to get down to: the next where contiguous ranges do not fit.
TARGETS = (0.99, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5)


def migrations(step: Step, device: DeviceView, uses_host: bool, paged: bool) -> MemoryPlan:
    """The gaps taken, as moves, for the highest target at which the device's memory can be given out."""
    plan = MemoryPlan()
    for target in TARGETS:
        plan = _plan(step, device.machine, uses_host, paged, target)
        if paged or device.estimate(plan).fits:
            return plan
    return plan


def _plan(step: Step, machine: Machine, uses_host: bool, paged: bool, target: float) -> MemoryPlan:
    """With contiguous ranges where the device is not ``paged``."""
    room = int(target * machine.capacity)
    planner = Planner(PagedStep(step), _rules(machine, uses_host, room), step.live_bytes)
    planner.select()
    found = [_swap(planner, taken) for taken in (*planner.prefetch(), *planner.looped)]
    picked = [swap for swap in found if swap is not None and _has_tier(swap, machine)]
    swaps = _until_it_fits(step, picked, machine, room)
    planned = within(step, swaps, room)
    high = tuple(sorted({swap.gap.tensor for swap in planned}))
    pool = None if paged or not planned else Pool("two_ended", PAGE, high)
    notes = {"target_bytes": room, "picked": len(picked), "on_demand": len(swaps) - len(picked)}
    return MemoryPlan(moves_of(planned), notes=notes, pool=pool)


def _rules(machine: Machine, uses_host: bool, target: int) -> Rules:
    return Rules(
        line=machine.capacity,
        target=target,
        host_bytes=machine.host_bytes if uses_host else 0,
        storage=(machine.write.bandwidth / 1e6, machine.read.bandwidth / 1e6),
        link=(machine.out.bandwidth / 1e6, machine.back.bandwidth / 1e6),
        storage_latency=machine.write.latency * 1e6,
        link_latency=machine.out.latency * 1e6,
    )


def _swap(planner: Planner, taken: Taken) -> Swap | None:
    """A taken gap in the words of ``swaps``; ``None`` for one whose copy could only begin when the step has ended."""
    gaps, ops = planner.gaps, planner.paged.ops
    start, end = int(gaps.start[taken.gap]), int(gaps.end[taken.gap])
    if start == 0:
        return None
    wraps = bool(gaps.looped[taken.gap]) and taken.back >= ops
    before = end if wraps or not gaps.looped[taken.gap] else ops
    tensor = int(gaps.tensor[taken.gap])
    gap = Gap(tensor, int(planner.paged.step.tensors.bytes[tensor]), start - 1, before, wraps)
    return Swap(gap, taken.back % ops if wraps else taken.back, "host" if taken.host else "storage")


def _has_tier(swap: Swap, machine: Machine) -> bool:
    return (machine.host_bytes if swap.tier == "host" else machine.storage_bytes) > 0


def _until_it_fits(step: Step, picked: list[Swap], machine: Machine, room: int) -> list[Swap]:
    """More swaps, fetched on demand, where the load with every fetch as late as may be is still over ``room``."""
    swaps = [*picked]
    load = load_under(step, [Swap(s.gap, s.gap.before, s.tier) for s in swaps])
    taken = {(swap.gap.tensor, swap.gap.after) for swap in swaps}
    idle = [gap for gap in gaps_of(step) if (gap.tensor, gap.after) not in taken]
    tier = "storage" if machine.storage_bytes > 0 else "host"
    while len(load) and load.max() > room:
        gap = _largest_idle(idle, load)
        if gap is None:
            break
        idle.remove(gap)
        swaps.append(Swap(gap, gap.before, tier))
        lighten(load, swaps[-1])
    return swaps


def _largest_idle(gaps: list[Gap], load: Ints) -> Gap | None:
    """The largest tensor that no op uses at the fullest op; among equals the one idle longest."""
    fullest = int(np.argmax(load))
    found = [gap for gap in gaps if gap.after < fullest < gap.before]
    return max(found, key=lambda gap: (gap.bytes, gap.before - gap.after), default=None)
