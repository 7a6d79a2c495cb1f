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

    simulator = Simulator(step, machine)

    def attempt(capacity: int) -> MemorySimulation | None:
        try:
            return simulator.on(replace(machine, capacity=capacity)).steady(plan)
        except (ImpossiblePlan, Infeasible):
            return None

    free = attempt(ENDLESS)
    if free is None:
        return {}
    enough = machine.capacity + int(missing or 0)
    if missing and (found := attempt(enough)):
        return {"memory": enough, "step_time": found.step_time}
    most = max(free.peak_bytes, enough + 1)
    return _halve(attempt, enough, most) or _halve(attempt, most, 2 * most)


def _halve(attempt: Attempt, low: int, high: int) -> dict[str, float]:
    """The least capacity that is known to suffice, at most ``high``; nothing where that does not.

    Where tensors have addresses, holes may want more than nothing waits for.
    """
    found = attempt(high)
    if found is None:
        return {}
    for _ in range(HALVINGS):
        middle = (low + high) // 2
        if tried := attempt(middle):
            high, found = middle, tried
        else:
            low = middle
    return {"memory": high, "step_time": found.step_time}
