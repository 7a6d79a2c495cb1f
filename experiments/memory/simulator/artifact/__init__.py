"""Carries out plans by the rules of the G10 artifact's simulator, see ``interface.release``."""

from __future__ import annotations

from experiments.memory.interface.machine import Machine
from experiments.memory.interface.paged import PagedStep
from experiments.memory.interface.plan import MemoryPlan
from experiments.memory.interface.release import PagingRelease, Release, TwoEndedRelease, WaitingRelease
from experiments.memory.simulator.artifact.paging import PagingSteps
from experiments.memory.simulator.artifact.two_ended import TwoEndedStep
from experiments.memory.simulator.artifact.waiting import WaitingStep
from experiments.memory.simulator.report import Simulation
from experiments.workloads.step import Step

__all__ = ["carry_out"]


def carry_out(step: Step, machine: Machine, plan: MemoryPlan, rules: Release) -> Simulation:
    """``plan`` on ``step`` by ``rules``; ``Infeasible`` names the op that finds no pages."""
    paged = PagedStep(step)
    if isinstance(rules, TwoEndedRelease):
        return TwoEndedStep(paged, machine, plan).run()
    if isinstance(rules, WaitingRelease):
        return WaitingStep(paged, machine, plan, rules.space_factor).run()
    if isinstance(rules, PagingRelease):
        return PagingSteps(paged, machine, plan, rules).run()
    raise TypeError(f"no engine carries out {type(rules).__name__}")
