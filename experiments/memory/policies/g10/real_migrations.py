"""G10's choice for a device as it is: the load is what is live, and what is planned fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from experiments.memory.interface import CountedBytes, DeviceView, MemoryMachine, MemoryPlan, MemoryPool
from experiments.memory.interface.paged import PAGE, PagedStep
from experiments.memory.planning.g10.migrations import MigrationPlanner, MigrationRules, Taken
from experiments.memory.planning.swaps import Gap, TensorSwap, moves_of, within
from experiments.memory.policies.g10.more_swaps import until_it_fits
from experiments.workloads.step import Step

#: The shares of the capacity that the planner tries to get down to: the next where contiguous ranges do not
#: fit.
TARGETS = (0.99, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5)


def migrations(step: Step, device: DeviceView, uses_host: bool, paged: bool) -> MemoryPlan:
    """The gaps taken, as moves, for the highest target at which the device's memory can be given out.

    Whether what is on its way back keeps to the order in which it is needed, a trial step decides.
    """
    plans: list[MemoryPlan] = []
    for target in TARGETS:
        plans = _plans(step, device.machine, uses_host, paged, target)
        trials = [device.estimate(plan) for plan in plans]
        if any(trial.fits for trial in trials):
            return plans[min(range(len(plans)), key=lambda place: trials[place].step_time)]
    return plans[-1]


def _plans(
    step: Step, machine: MemoryMachine, uses_host: bool, paged: bool, target: float
) -> list[MemoryPlan]:
    """One choice of gaps, brought back as early as memory allows, and in turn. Contiguous where not
    ``paged``.
    """
    room = int(target * machine.capacity)
    planner = MigrationPlanner(PagedStep(step), _rules(machine, uses_host, room), step.live_bytes)
    planner.select()
    found = [_swap(planner, taken) for taken in (*planner.prefetch(), *planner.looped)]
    picked = [swap for swap in found if swap is not None and _has_tier(swap, machine)]
    planned = within(step, until_it_fits(step, picked, machine, room, uses_host), room)
    notes = {"target_bytes": room, "picked": len(picked), "added": len(planned) - len(picked)}
    high = tuple(sorted({swap.gap.tensor for swap in planned}))
    space = CountedBytes() if paged or not planned else MemoryPool("two_ended", PAGE, high)
    orders = (planned, in_turn(planned))
    return [MemoryPlan(moves_of(swaps), notes=notes, space=space) for swaps in orders]


def in_turn(swaps: Sequence[TensorSwap]) -> list[TensorSwap]:
    """Put the ways back in turn, so that none begins before one that is needed sooner.

    The link carries them one after another.
    """
    found: list[TensorSwap] = []
    for swap in sorted(swaps, key=lambda swap: swap.gap.before):
        sooner = found[-1].back if found else 0
        found.append(replace(swap, back=max(swap.back, sooner)))
    return found


def _rules(machine: MemoryMachine, uses_host: bool, target: int) -> MigrationRules:
    return MigrationRules(
        line=machine.capacity,
        target=target,
        host_bytes=machine.host_bytes if uses_host else 0,
        storage=(machine.write.bandwidth / 1e6, machine.read.bandwidth / 1e6),
        link=(machine.out.bandwidth / 1e6, machine.back.bandwidth / 1e6),
        storage_latency=machine.write.latency * 1e6,
        link_latency=machine.out.latency * 1e6,
    )


def _swap(planner: MigrationPlanner, taken: Taken) -> TensorSwap | None:
    """A taken gap in the words of ``swaps``; ``None`` for one whose copy could only begin when the step has
    ended.
    """
    gaps, ops = planner.gaps, planner.paged.ops
    start, end = int(gaps.start[taken.gap]), int(gaps.end[taken.gap])
    if start == 0:
        return None
    wraps = bool(gaps.looped[taken.gap]) and taken.back >= ops
    before = end if wraps or not gaps.looped[taken.gap] else ops
    tensor = int(gaps.tensor[taken.gap])
    gap = Gap(tensor, int(planner.paged.step.tensors.bytes[tensor]), start - 1, before, wraps)
    return TensorSwap(gap, taken.back % ops if wraps else taken.back, "host" if taken.host else "storage")


def _has_tier(swap: TensorSwap, machine: MemoryMachine) -> bool:
    return (machine.host_bytes if swap.tier == "host" else machine.storage_bytes) > 0
