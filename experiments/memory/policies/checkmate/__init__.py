"""Checkmate (Jain et al., MLSys 2020): the rematerialization schedule of least cost in a memory budget, as a
MILP.

The step is coarsened to ``groups`` groups of forward ops and as many stages of the backward pass
(``coarse``); the program with R, S, FREE and U of the paper is in ``remat_program``. A group leaves two
values behind, what later groups read and what only the backward pass reads, where a node of the paper leaves
one. HiGHS is given a number of branch-and-bound nodes instead of seconds, so that the answer never depends on
the machine. The linear relaxation in 0.9 of the budget with S rounded at 0.1 ... 0.9 (section 5.2) is the
``rounding`` variant, and what is taken where the MILP finds nothing, or with finer groups; where that fits
nothing either, checkpointing by a searched budget (Chen et al. 2016) is.

Left open by the paper: the coarsening; backward ops run once; groups are planned for the whole of what they
hold, so a plan may take less than it was allowed: it is then made once more for a budget that is larger by as
much.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from experiments.core.knobs import knob
from experiments.core.policy import SECONDS
from experiments.memory.interface import DeviceView, MemoryPlan, MemoryPolicy
from experiments.memory.planning.borders import search_budgets
from experiments.memory.planning.chain import chain_of
from experiments.memory.planning.milp import NodeBound
from experiments.memory.policies.checkmate.coarse import Coarse, coarse
from experiments.memory.policies.checkmate.remat_program import Schedule, solve_by_rounding, solve_exactly
from experiments.workloads.step import Step

#: A plan that takes less of the device than this is drawn up anew for a larger budget, up to ``MOST`` times
#: the device.
FULL = 0.95
MOST = 1.2
#: Groups of the rounded program that is tried where ``groups`` groups have no schedule that fits.
FINE = 30


@dataclass(frozen=True)
class Checkmate(MemoryPolicy):
    """The cheapest rematerialization schedule in the device's memory, by integer programming."""

    name: ClassVar[str] = "checkmate"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    effort: ClassVar[str] = SECONDS
    quick: ClassVar[Mapping[str, Any]] = {"groups": 5}

    variant: str = knob("milp", "integer program, or its rounded relaxation", choices=("milp", "rounding"))
    groups: int = knob(12, "groups that the forward pass is coarsened to", low=2, high=30)
    nodes: int = knob(60, "branch-and-bound nodes", low=1, high=100_000)
    gap: float = knob(0.01, "relative gap at which the program counts as solved", low=0.0, high=1.0)

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        if step.live_peak <= device.capacity:
            return MemoryPlan()
        bound = NodeBound(self.nodes, device.progress)
        plan = self._cheapest(step, device, bound)
        return replace(plan, notes={**plan.notes, **bound.caveat()})

    def _cheapest(self, step: Step, device: DeviceView, bound: NodeBound) -> MemoryPlan:
        """By the program, in a budget that its plan fills; else by the finer one; else by checkpointing."""
        plan = self._within(step, device, bound, 1.0, self.groups, self.variant)
        peak = device.estimate(plan).peak_memory if plan else 0
        if plan and peak < FULL * device.capacity:
            slack = min(MOST, device.capacity / peak)
            wider = self._within(step, device, bound, slack, self.groups, self.variant)
            return min(
                [plan, *([wider] if wider else [])], key=lambda found: device.estimate(found).step_time
            )
        plan = plan or self._within(step, device, bound, 1.0, FINE, "rounding")
        if plan:
            return plan
        fallback = search_budgets(chain_of(step), step, device, keep_last=True)
        return MemoryPlan(fallback.moves, notes={**fallback.notes, "solved_by": "checkpoint"})

    def _within(
        self, step: Step, device: DeviceView, bound: NodeBound, share: float, groups: int, variant: str
    ) -> MemoryPlan | None:
        """The plan for ``share`` of the device, if there is one and it fits all of it."""
        small = coarse(step, int(device.capacity * share), groups)
        schedule, notes = self._solve(small, variant, bound)
        plan = small.plan(schedule) if schedule else None
        if plan is None or not device.estimate(plan).fits:
            return None
        return MemoryPlan(plan.moves, notes={**notes, "groups": groups, "budget_share": share})

    def _solve(
        self, problem: Coarse, variant: str, bound: NodeBound
    ) -> tuple[Schedule | None, dict[str, Any]]:
        """The schedule, and how it was found."""
        if min([*problem.problem.forward, *problem.problem.stages]) < 0:
            return None, {}
        if variant == "milp":
            found = solve_exactly(problem.problem, bound, self.gap)
            if found:
                schedule, solution = found
                return schedule, {"solved_by": "milp", "proven": solution.proven}
        return solve_by_rounding(problem.problem, bound), {"solved_by": "rounding"}
