"""Checkmate (Jain et al., MLSys 2020): the rematerialization schedule of least cost in a memory budget, as a
MILP.

The step is coarsened to ``groups`` groups of forward ops and as many stages of the backward pass
(``coarse``); the program with R, S, FREE and U of the paper is in ``remat_program``. A group leaves two
values behind, what later groups read and what only the backward pass reads, where a node of the paper leaves
one. HiGHS is given a number of branch-and-bound nodes instead of seconds, so that the answer never depends on
the machine. The linear relaxation in 0.9 of the budget with S rounded at 0.1 ... 0.9 (section 5.2) is the
``rounding`` variant, and what is taken where the MILP finds nothing, or with finer groups.

What is proved is told with what it is proved of. A step whose forward ops are no more than ``groups`` is not
coarsened: the cheapest of all its schedules is found (``every_schedule``), reruns during the forward pass and
of the backward pass among them. The program on groups has neither, and plans each group for the whole of what
it holds, so a plan may take less than it was allowed: it is made once more for a budget that is larger by as
much. The better ways to checkpoint (Chen et al. 2016) and to evict online (Kirisame et al. 2021), which act
on single ops, are tried as well: the fastest plan that fits is the answer.

Left open by the paper: the coarsening.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from experiments.core.errors import Infeasible
from experiments.core.knobs import knob
from experiments.core.policy import SECONDS
from experiments.memory.interface import DeviceView, MemoryPlan, MemoryPolicy
from experiments.memory.interface.activations import last_forward_op
from experiments.memory.planning.borders import keep_every_kth, keep_most_states, search_budgets
from experiments.memory.planning.chain import chain_of
from experiments.memory.planning.eviction.neighborhood import Classes, Full, Local
from experiments.memory.planning.eviction.online import EvictionRules, evict_online
from experiments.memory.planning.milp import NodeBound
from experiments.memory.policies.checkmate.coarse import Coarse, coarse
from experiments.memory.policies.checkmate.every_schedule import cheapest_of_all
from experiments.memory.policies.checkmate.remat_program import Schedule, solve_by_rounding, solve_exactly
from experiments.workloads.step import Step

#: A plan that takes less of the device than this is drawn up anew for a larger budget, up to ``MOST`` times
#: the device.
FULL = 0.95
MOST = 1.2
#: Groups of the rounded program that is tried where ``groups`` groups have no schedule that fits.
FINE = 30
#: Online eviction is given up where the step takes longer than so many times its own compute, and nothing is
#: known that fits.
MOST_TIME = 20.0


@dataclass(frozen=True)
class Checkmate(MemoryPolicy):
    """The cheapest rematerialization schedule in the device's memory, by integer programming."""

    name: ClassVar[str] = "checkmate"
    mechanism: ClassVar[str] = "recompute"
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
        exact = self._exactly(step, device)
        if exact:
            return exact
        bound = NodeBound(self.nodes, device.progress)
        plan = self._best(step, device, bound)
        return replace(plan, notes={**plan.notes, **bound.caveat()})

    def _best(self, step: Step, device: DeviceView, bound: NodeBound) -> MemoryPlan:
        """The fastest of what the program finds and what is known to act on single ops."""
        best = _fastest(self._by_program(step, device, bound), device)
        if self.variant == "milp" or not best:
            best = _fastest([*([best] if best else []), *_checkpoints(step, device)], device)
            for stay, valuation in itertools.product((False, True), (Classes, Full, Local)):
                best = _evicting(step, device, EvictionRules(valuation, stay=stay), best) or best
        return best or _as_small_as_possible(step, device)

    def _exactly(self, step: Step, device: DeviceView) -> MemoryPlan | None:
        """The cheapest of all schedules, for a step that need not be coarsened."""
        if self.variant != "milp" or last_forward_op(step) >= self.groups:
            return None
        best = cheapest_of_all(step, device.capacity)
        if best is None or best.plan is None:
            return None
        proven = f"of all schedules of {len(step.ops)} ops"
        return MemoryPlan(best.plan.moves, notes={"solved_by": "shortest path", "proven": proven})

    def _by_program(self, step: Step, device: DeviceView, bound: NodeBound) -> list[MemoryPlan]:
        """Plans of the program on groups that fit."""
        plan = self._within(step, device, bound, 1.0, self.groups, self.variant)
        if plan is None:
            plan = self._within(step, device, bound, 1.0, FINE, "rounding")
            return [plan] if plan else []
        peak = device.estimate(plan).peak_memory
        if peak >= FULL * device.capacity:
            return [plan]
        slack = min(MOST, device.capacity / peak)
        wider = self._within(step, device, bound, slack, self.groups, self.variant)
        return [plan, *([wider] if wider else [])]

    def _within(
        self, step: Step, device: DeviceView, bound: NodeBound, share: float, groups: int, variant: str
    ) -> MemoryPlan | None:
        """The plan for ``share`` of the device, if there is one and it fits all of it."""
        small = coarse(step, int(device.capacity * share), groups)
        schedule, notes = self._solve(small, variant, bound)
        plan = small.plan(schedule) if schedule else None
        if plan is None or not device.estimate(plan).fits:
            return None
        return MemoryPlan(plan.moves, notes={**notes, "groups": len(small.ends), "budget_share": share})

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
                what = f"of {len(problem.ends)} groups, within {self.gap:.2g} of the best"
                return schedule, {"solved_by": "milp", "proven": what if solution.proven else "nothing"}
        return solve_by_rounding(problem.problem, bound), {"solved_by": "rounding"}


def _checkpoints(step: Step, device: DeviceView) -> Iterator[MemoryPlan]:
    """The ways to checkpoint that ask for no number."""
    chain = chain_of(step)
    for keep_last in (True, False):
        for plan in (
            keep_every_kth(chain, keep_last),
            search_budgets(chain, step, device, keep_last),
            keep_most_states(chain, step, device, keep_last),
        ):
            yield MemoryPlan(plan.moves, notes={**plan.notes, "solved_by": "checkpoint"})


def _evicting(
    step: Step, device: DeviceView, rules: EvictionRules, best: MemoryPlan | None
) -> MemoryPlan | None:
    """Online eviction, given up as soon as it is no faster than ``best``."""
    limit = device.estimate(best).step_time / step.seconds if best and step.seconds else MOST_TIME
    try:
        plan = evict_online(step, device.capacity, replace(rules, limit=limit))
    except Infeasible:
        return None
    plan = MemoryPlan(plan.moves, notes={**plan.notes, "solved_by": "online eviction"})
    return _fastest([*([best] if best else []), plan], device)


def _fastest(plans: Sequence[MemoryPlan], device: DeviceView) -> MemoryPlan | None:
    """The fastest that fits; among equals the first."""
    tried = [(plan, device.estimate(plan)) for plan in plans]
    fitting = [(plan, estimate.step_time) for plan, estimate in tried if estimate.fits]
    return min(fitting, key=lambda found: found[1])[0] if fitting else None


def _as_small_as_possible(step: Step, device: DeviceView) -> MemoryPlan:
    """Where nothing fits: checkpointing says how much is missing."""
    plan = search_budgets(chain_of(step), step, device, keep_last=True)
    return MemoryPlan(plan.moves, notes={**plan.notes, "solved_by": "checkpoint"})
