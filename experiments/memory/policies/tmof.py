"""TMOF (Lin et al., HPCA 2023): devices that share a host link swap different tensors, or take turns.

The devices do the same step. Swaps are chosen for one of them: ``online`` takes the largest gap around the
highest load until the step fits; ``offline`` solves the program of ``planning.locations`` with copies
overlapped with any op of a gap (its longest ``places``). *Disjoint swapping*: from the list of gaps by size
device g prefers every G-th from the g-th on, so that the devices' copies fall at different times; offline its
program may move every G-th of the tensors by size, and all of them only where that share does not fit.
*Bidirectional overlapping*: a token for each direction of the link; a copy runs only with its token, so that
one device's copy out overlaps with another's copy in. ``auto`` tries both, each and neither on the shared
link and keeps what is fastest. The step lasts as long as on the slowest device, since gradients are
synchronized at its end.

Left open by the abstract: a token is given back after each tensor, devices that wait are served in turn; how
many devices share a link is a knob.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from experiments.core.errors import Infeasible
from experiments.core.knobs import knob
from experiments.core.policy import SECONDS
from experiments.memory.interface import (
    DeviceView,
    MemoryMachine,
    MemoryPlan,
    PlanEstimate,
    SharedLinkPolicy,
    SharedPlans,
)
from experiments.memory.planning.location_moves import moves_of as moves_of_program
from experiments.memory.planning.locations import LocationProgram, LocationRules
from experiments.memory.planning.milp import NodeBound
from experiments.memory.planning.swaps import (
    Gap,
    TensorSwap,
    UnstalledClock,
    earliest_return,
    gaps_of,
    lighten,
    moves_of,
    within,
)
from experiments.workloads.step import Step

Together = Callable[[SharedPlans], Sequence[PlanEstimate]]
#: Each mode: whether the devices' swaps differ, and how they share the link.
MODES = {
    "oblivious": (False, "fair"),
    "disjoint": (True, "fair"),
    "bidirectional": (False, "turns"),
    "both": (True, "turns"),
}
#: An op may hide copies of any gap that it lies in.
ANYWHERE = 10**6


@dataclass(frozen=True)
class Tmof(SharedLinkPolicy):
    """Devices that share a host link swap disjoint sets of tensors or take turns on it, chosen by trial."""

    name: ClassVar[str] = "tmof"
    mechanism: ClassVar[str] = "offload"
    effort: ClassVar[str] = SECONDS

    devices: int = knob(2, "devices that share the host link", low=1, high=16)
    mode: str = knob("auto", "how devices share the link", choices=("auto", *MODES))
    selection: str = knob("online", "how swaps are chosen", choices=("online", "offline"))
    places: int = knob(3, "ops that an offline copy may overlap, the longest of its gap", low=1, high=100)
    nodes: int = knob(30, "branch-and-bound nodes of each offline program", low=1, high=10**6)
    least_bytes: int = knob(2**16, "smaller tensors stay on the device", low=1, high=2**40, unit="bytes")

    def share(self, step: Step, device: DeviceView, together: Together | None) -> SharedPlans:
        if step.live_peak <= device.capacity:
            return SharedPlans((MemoryPlan(),) * self.devices)
        bound = NodeBound(self.nodes, device.progress)
        shared = self._fastest(step, device, together, bound)
        noted = (replace(plan, notes={**plan.notes, **bound.caveat()}) for plan in shared.plans)
        return replace(shared, plans=tuple(noted))

    def _fastest(
        self, step: Step, device: DeviceView, together: Together | None, bound: NodeBound
    ) -> SharedPlans:
        if self.mode != "auto" or together is None:
            return self._plans(step, device, "disjoint" if self.mode == "auto" else self.mode, bound)
        tried = [self._plans(step, device, mode, bound) for mode in MODES]
        times = [slowest(together, plans) for plans in tried]
        return tried[min(range(len(tried)), key=lambda i: (times[i], i))]

    def _plans(self, step: Step, device: DeviceView, mode: str, bound: NodeBound) -> SharedPlans:
        disjoint, discipline = MODES[mode]
        choose = functools.partial(self._offline, bound) if self.selection == "offline" else self._online
        if not disjoint:
            return SharedPlans((choose(step, device, 0, 1, mode),) * self.devices, discipline)
        found = [choose(step, device, shift, self.devices, mode) for shift in range(self.devices)]
        return SharedPlans(tuple(found), discipline)

    def _online(self, step: Step, device: DeviceView, shift: int, stride: int, mode: str) -> MemoryPlan:
        ranked = sorted(
            gaps_of(step, self.least_bytes, wrapping=True), key=lambda g: (-g.bytes, g.tensor, g.after)
        )
        gaps = until_it_fits(step, dealt(ranked, shift, stride), device.capacity)
        clock = UnstalledClock(step)
        swaps = [TensorSwap(gap, back_in_time(clock, gap, device.machine)) for gap in gaps]
        moves = moves_of(within(step, swaps, device.capacity))
        return MemoryPlan(moves, notes={"mode": mode, "swaps": len(swaps), "shift": shift})

    def _offline(
        self, bound: NodeBound, step: Step, device: DeviceView, shift: int, stride: int, mode: str
    ) -> MemoryPlan:
        limits = np.full(len(step.ops), float(device.capacity))
        sizes = {gap.tensor: gap.bytes for gap in gaps_of(step, self.least_bytes, wrapping=True)}
        ranked = sorted(sizes, key=lambda tensor: (-sizes[tensor], tensor))
        for movable in dict.fromkeys((tuple(ranked[shift::stride]), tuple(ranked))):
            rules = LocationRules(window=ANYWHERE, places=self.places)
            program = LocationProgram(step, device.machine, sorted(movable), limits, rules)
            solution = program.solve(bound, gap=0.01, most_binaries=3000)
            if solution is not None:
                notes = {"mode": mode, "objective": solution.objective, "shift": shift}
                return MemoryPlan(moves_of_program(program, solution), notes=notes)
        raise Infeasible(bound.explain("no places for tensors keep within the limit"), "tmof")


def slowest(together: Together, plans: SharedPlans) -> float:
    """Seconds of the step on the slowest device; infinite where it does not fit."""
    try:
        return max(estimate.step_time for estimate in together(plans))
    except Infeasible:
        return float("inf")


def dealt(ranked: Sequence[Gap], shift: int, stride: int) -> list[Gap]:
    """Return the list dealt round.

    Every ``stride``-th gap from the ``shift``-th on first, then from the next one on ...
    """
    order = sorted(range(len(ranked)), key=lambda i: ((i - shift) % stride, i))
    return [ranked[i] for i in order]


def until_it_fits(step: Step, gaps: Sequence[Gap], capacity: int) -> list[Gap]:
    """Return the gaps taken, in the order given, until the highest load is within ``capacity``.

    Each is around the op where the load is highest then.
    """
    load, found = step.live_bytes.copy(), list[Gap]()
    after, before = (np.array([getattr(gap, end) for gap in gaps], np.int64) for end in ("after", "before"))
    wraps = np.array([gap.wraps for gap in gaps], bool)
    left = np.ones(len(gaps), bool)
    while gaps and load[peak := int(load.argmax())] > capacity:
        begun, ends = after < peak, peak < before
        crosses = left & np.where(wraps, begun | ends, begun & ends)
        first = int(crosses.argmax())
        if not crosses[first]:
            break
        left[first] = False
        found.append(gaps[first])
        lighten(load, TensorSwap(gaps[first], gaps[first].before))
    return found


def back_in_time(clock: UnstalledClock, gap: Gap, machine: MemoryMachine) -> int:
    """The latest op from which the copy back is hidden if the link is free."""
    return min(gap.before, clock.walk_back(gap.before, machine.back_time(gap.bytes), earliest_return(gap)))
