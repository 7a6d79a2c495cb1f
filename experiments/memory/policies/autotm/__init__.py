"""AutoTM (Hildebrand et al., ASPLOS 2020): one integer program says where every tensor is resident and when
it moves.

``static`` gives each tensor one place for life, ``synchronous`` lets it move between ops at its uses, and
``asynchronous`` also overlapped with an op within 15 positions of a use. Where the machine has memory that
ops can use in place (``remote``), an op that does so lasts as long as that memory takes; elsewhere (the
paper's GPU form) every op needs its tensors on the device, and nothing can be static. The objective is the
time by which ops and copies between them prolong the step, where a copy hides behind one op at most. The
solution is carried out as the objective counts, and where copies may overlap in other ways too, of which the
fastest in a trial is kept (``candidates``; the notes name it). If an allocator with addresses would pass the
limit, the limits of ops within 10 positions of the uses of what did not fit are lowered, limit *= max(0.90, 1
- (worst / limit - 1) / 2), and the program is solved again.

Left open by the paper or ours: the time of an op on remote memory is max(its time, bytes / bandwidth) instead
of a profile of each combination; every departure pays for its copy in the objective, though copies that are
still good are kept; copies overlap with the longest ``places`` ops of the window; only the largest tensors
that are needed take part, and a program of more than ``most_binaries`` is relaxed first and what is whole
then fixed (HiGHS, budget in nodes).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from experiments.core.errors import Infeasible
from experiments.core.knobs import knob
from experiments.core.policy import MINUTES
from experiments.memory.interface import (
    CountedBytes,
    DeviceView,
    MemoryMachine,
    MemoryPlan,
    MemoryPolicy,
    MemoryPool,
)
from experiments.memory.planning.location_moves import absent_ops, load_of
from experiments.memory.planning.locations import LocationProgram, LocationRules
from experiments.memory.planning.milp import MixedIntegerSolution, NodeBound
from experiments.memory.planning.offsets import Overflow, overflow
from experiments.memory.policies.autotm.candidates import fastest
from experiments.workloads.step import Floats, Step

#: Positions around the uses of a tensor that did not fit within which limits are lowered.
AROUND = 10


@dataclass(frozen=True)
class AutoTM(MemoryPolicy):
    """An integer program places and moves tensors: static, synchronous or asynchronous."""

    name: ClassVar[str] = "autotm"
    mechanism: ClassVar[str] = "offload"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    effort: ClassVar[str] = MINUTES
    quick: ClassVar[Mapping[str, Any]] = {"nodes": 2, "most_binaries": 500}

    mode: str = knob(
        "asynchronous", "which moves are allowed", choices=("static", "synchronous", "asynchronous")
    )
    window: int = knob(15, "ops next to a use that a copy may overlap with", low=1, high=100)
    places: int = knob(3, "of these, how many of the longest are offered", low=1, high=100)
    least_bytes: int = knob(2**16, "smaller tensors stay on the device", low=1, high=2**40, unit="bytes")
    most_binaries: int = knob(3000, "larger programs are relaxed first", low=1, high=10**6)
    nodes: int = knob(30, "branch-and-bound nodes of one solution", low=1, high=10**6)
    gap: float = knob(0.01, "relative distance from the optimum that is good enough", low=0.0, high=1.0)
    allocator: str = knob(
        "none", "allocator that may break the limit", choices=("none", "first_fit", "best_fit")
    )
    rounds: int = knob(12, "solutions at most when the allocator breaks the limit", low=1, high=50)

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        if step.live_peak <= device.capacity:
            return MemoryPlan()
        rules = self._rules(device.machine)
        bound = NodeBound(self.nodes, device.progress)
        limits = np.full(len(step.ops), float(device.capacity))
        for attempt in range(1, self.rounds + 1):
            program, solution = self._solve(step, device, limits, rules, bound)
            over = self._overflow(step, absent_ops(program, solution), device.capacity)
            if over is None or attempt == self.rounds:
                break
            limits = lowered(limits, step, over, device.capacity)
        space = CountedBytes() if self.allocator == "none" else MemoryPool(self.allocator)
        way, moves = fastest(program, solution, lambda moves: device.estimate(MemoryPlan(moves, space=space)))
        notes = {
            "objective": solution.objective,
            "binaries": len(program.program),
            "proven": solution.proven,
            "solutions": attempt,
            "carried_out": way,
            "address_end": None if over is None else over.end,
            **bound.caveat(),
        }
        return MemoryPlan(moves, notes=notes, space=space)

    def _rules(self, machine: MemoryMachine) -> LocationRules:
        remote = machine.remote_bytes > 0
        if self.mode == "static" and not remote:
            raise Infeasible("static placement needs memory that ops can use in place", "autotm")
        window = self.window if self.mode == "asynchronous" else 0
        return LocationRules(
            "remote" if remote else "host", remote, self.mode != "static", window, self.places
        )

    def _solve(
        self, step: Step, device: DeviceView, limits: Floats, rules: LocationRules, bound: NodeBound
    ) -> tuple[LocationProgram, MixedIntegerSolution]:
        """The largest tensors take part: as many as are needed, and half as many again, at first."""
        candidates = movable(step, limits, self.least_bytes)
        count = enough(step, candidates, limits, rules.in_place)
        while True:
            program = LocationProgram(step, device.machine, candidates[:count], limits, rules)
            solution = program.solve(bound, self.gap, self.most_binaries)
            if solution is not None:
                excess = load_of(step, absent_ops(program, solution)) - limits
                if excess.max() <= 0:
                    return program, solution
                limits = limits - 2 * np.maximum(excess, 0)  # what the solver's tolerance let pass
                continue
            if count >= len(candidates):
                worst = int((step.live_bytes - limits).argmax())
                what = bound.explain("no places for tensors keep within the limit")
                raise Infeasible(what, f"op {worst} ({step.ops.name[worst]})")
            count = min(len(candidates), 2 * count)

    def _overflow(
        self, step: Step, absent: dict[int, list[tuple[int, int]]], capacity: int
    ) -> Overflow | None:
        return None if self.allocator == "none" else overflow(step, absent, capacity, self.allocator)


def movable(step: Step, limits: Floats, least_bytes: int) -> list[int]:
    """Tensors that exist while some op exceeds its limit, the largest first."""
    over = np.concatenate(([0], np.cumsum(step.live_bytes > limits)))
    used = (step.last_use >= 0) & (step.tensors.bytes >= least_bytes)
    first, last = np.where(used, step.first_use, 0), np.where(used, step.last_use, 0)
    concerned = used & (step.persistent | (over[last + 1] > over[first]))
    order = np.lexsort((np.arange(len(used)), -step.tensors.bytes))
    return [tensor for tensor in order.tolist() if concerned[tensor]]


def enough(step: Step, candidates: list[int], limits: Floats, in_place: bool) -> int:
    """How many of the first candidates free bytes where they are not used, and half as many again."""
    load = step.live_bytes - limits
    for count, tensor in enumerate(candidates, 1):
        size = step.tensors.bytes[tensor]
        uses = step.uses[tensor]
        if step.persistent[tensor]:
            load -= size
        else:
            load[uses[0] : uses[-1] + 1] -= size
        if not in_place:
            load[uses] += size
        if count % 16 == 0 and load.max() <= 0:
            return min(len(candidates), count + count // 2 + 16)
    return len(candidates)


def lowered(limits: Floats, step: Step, over: Overflow, capacity: int) -> Floats:
    """Lower limits around the uses of every tensor that ended above the limit.

    None below what its op needs.
    """
    factor = max(0.90, 1 - (over.end / capacity - 1) / 2)
    near = np.zeros(len(limits), np.bool_)
    for tensor in over.tensors:
        for use in step.uses[tensor].tolist():
            near[max(0, use - AROUND) : use + AROUND + 1] = True
    return np.where(near, np.maximum(limits * factor, step.op_need), limits)
