"""The least device that carries out a plan which does not fit: its memory, and the time of the step there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from experiments.core.errors import ImpossiblePlan, Infeasible
from experiments.memory.interface import MemoryMachine, MemoryPlan
from experiments.memory.simulator import MemorySimulation, Simulator
from experiments.workloads.step import Step

#: Bytes of a device that nothing fills.
ENDLESS = 2**60
#: Halvings of what lies between the device at hand and one on which nothing waits for memory.
HALVINGS = 6

Attempt = Callable[[int], MemorySimulation | None]


def least_device(
    step: Step, machine: MemoryMachine, plan: MemoryPlan, missing: float | None
) -> dict[str, float]:
    """Return ``memory`` (bytes) of the least device on which the plan runs, and its ``step_time`` (s) there.

    The memory is exact where what is ``missing`` suffices, else at most a 64th of what nothing waits for too
    large. Nothing where more device memory does not help.
    """

    def attempt(capacity: int) -> MemorySimulation | None:
        try:
            return Simulator(step, replace(machine, capacity=capacity)).steady(plan)
        except (ImpossiblePlan, Infeasible):
            return None

    free = attempt(ENDLESS)
    if free is None:
        return {}
    capacity, found = _least(attempt, machine.capacity, int(missing or 0), free)
    return {"memory": capacity, "step_time": found.step_time}


def _least(
    attempt: Attempt, capacity: int, missing: int, free: MemorySimulation
) -> tuple[int, MemorySimulation]:
    """The least capacity that is known to suffice, between one that does not and that of ``free``."""
    low, high, found = capacity, int(max(free.peak_bytes, free.pool_bytes or 0, capacity + 1)), free
    if missing and (enough := attempt(low + missing)):
        return low + missing, enough
    low += missing
    for _ in range(HALVINGS if high > low else 0):
        middle = (low + high) // 2
        tried = attempt(middle)
        if tried is None:
            low = middle
        else:
            high, found = middle, tried
    return high, found
