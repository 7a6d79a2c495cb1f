"""Simulates plans for one step on one machine: the door to everything here."""

from __future__ import annotations

import copy
import functools
from collections import deque

from experiments.core.errors import BadInput, Infeasible
from experiments.memory.interface.machine import MemoryMachine, PlanEstimate, Split
from experiments.memory.interface.microbatch import in_microbatches
from experiments.memory.interface.plan import MemoryPlan
from experiments.memory.interface.policy import ReactiveMemoryPolicy
from experiments.memory.interface.release import Release
from experiments.memory.interface.space import Paging
from experiments.memory.interface.transform import changes_step, transformed
from experiments.memory.simulator import g10_release
from experiments.memory.simulator.paging import PagedRun
from experiments.memory.simulator.prepared import Prepared
from experiments.memory.simulator.recorder import UNWATCHED, RunRecorder
from experiments.memory.simulator.report import MemorySimulation
from experiments.memory.simulator.run import StepRun
from experiments.workloads.step import Step

#: Spaces of pages: a step on them is repeated by itself until it is warm.
REPEATING = (Paging, Release)
#: Steps that are simulated in a row to see a steady one.
ITERATIONS = 4


class Simulator:
    """Simulates plans for one step on one machine; what does not depend on the plan is prepared once.

    ``split`` gives the step in micro-batches; without it the step is cut as a trace is.
    """

    def __init__(self, step: Step, machine: MemoryMachine, split: Split | None = None) -> None:
        self.prepared = Prepared(step, machine)
        self.split: Split = split or functools.partial(in_microbatches, step)
        self._latest: tuple[tuple[object, ...], Prepared] = ((), self.prepared)

    def on(self, machine: MemoryMachine) -> Simulator:
        """Return a simulator of the same step on another machine; what was prepared is shared."""
        other = copy.copy(self)
        other.prepared = self.prepared.on(machine)
        other._latest = (self._latest[0], self._latest[1].on(machine))
        return other

    def run(
        self,
        plan: MemoryPlan,
        policy: ReactiveMemoryPolicy | None = None,
        iterations: int = 1,
        recorder: RunRecorder = UNWATCHED,
    ) -> MemorySimulation:
        """Simulate one step under ``plan``; ``Infeasible`` names the op that does not fit, and by how much.

        With more ``iterations`` the step is repeated: copies in flight when one ends overlap with the next.
        The last one is reported, from end to end, and holds the first. A paged device repeats the step by
        itself. ``recorder`` watches the step that is reported.
        """
        prepared = self._prepare(plan)
        recorder.begin()
        if isinstance(plan.space, REPEATING):
            simulation = _carry_out_pages(prepared, plan, plan.space, iterations, recorder)
            recorder.lay_out(prepared.seconds, simulation)
            return simulation
        run = StepRun(prepared, plan, policy, recorder)
        deque(run.walk(iterations), maxlen=0)
        return run.report()

    def steady(
        self,
        plan: MemoryPlan,
        policy: ReactiveMemoryPolicy | None = None,
        recorder: RunRecorder = UNWATCHED,
    ) -> MemorySimulation:
        """Simulate one step of many: a single one if it leaves all as it began, else one that others precede.

        A reactive policy may leave parameters on a tier.
        """
        once = self.run(plan, policy, recorder=recorder)
        if isinstance(plan.space, REPEATING) or not (once.stalls["drain"] or plan.reactive):
            return once
        return self.run(plan, policy, ITERATIONS, recorder)

    def _prepare(self, plan: MemoryPlan) -> Prepared:
        """What is simulated: the step as the plan changes it; the latest such step is kept."""
        if not changes_step(plan, self.prepared.step):
            return self.prepared
        key = (plan.splits, plan.out_of_place, plan.order, plan.overlays)
        if self._latest[0] != key:
            step = self.prepared.step if plan.splits == 1 else self.split(plan.splits)
            step = transformed(step, plan)
            self._latest = (key, Prepared(step, self.prepared.machine))
        return self._latest[1]

    def estimate(self, plan: MemoryPlan) -> PlanEstimate:
        """A trial: what ``run`` would give, or why it does not fit."""
        try:
            return self.run(plan).estimate
        except Infeasible as error:
            return PlanEstimate(False, reason=str(error), missing=error.missing)


def _carry_out_pages(
    prepared: Prepared, plan: MemoryPlan, space: Paging | Release, iterations: int, recorder: RunRecorder
) -> MemorySimulation:
    """``plan`` on a device of pages, its own or that of a release's rules."""
    if iterations > 1:
        raise BadInput(
            f"{iterations} iterations of a plan that repeats its step by itself", "simulation", "1"
        )
    if isinstance(space, Paging):
        return PagedRun(prepared, plan, space, recorder).run()
    return g10_release.carry_out(prepared, plan, space, recorder)
