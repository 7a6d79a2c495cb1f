"""Carries out plans by the rules of the G10 artifact's simulator, see ``interface.artifact``."""

from __future__ import annotations

from experiments.core.errors import BadInput
from experiments.memory.interface.artifact import ENGINES, Artifact
from experiments.memory.interface.machine import Machine
from experiments.memory.interface.paged import PagedStep
from experiments.memory.interface.plan import MemoryPlan
from experiments.memory.simulator.artifact.paging import PagingSteps
from experiments.memory.simulator.artifact.two_ended import TwoEndedStep
from experiments.memory.simulator.artifact.waiting import WaitingStep
from experiments.memory.simulator.report import Simulation
from experiments.workloads.step import Step

__all__ = ["carry_out"]


def carry_out(step: Step, machine: Machine, plan: MemoryPlan, rules: Artifact) -> Simulation:
    """``plan`` on ``step`` by ``rules``; ``Infeasible`` names the op that finds no pages."""
    paged = PagedStep(step)
    if rules.engine == "two_ended":
        return TwoEndedStep(paged, machine, plan).run()
    if rules.engine == "waiting":
        return WaitingStep(paged, machine, plan, rules.space_factor).run()
    if rules.engine == "paging":
        return PagingSteps(paged, machine, plan, rules).run()
    raise BadInput(f"unknown engine {rules.engine!r}", "plan.artifact", "one of " + ", ".join(ENGINES))
