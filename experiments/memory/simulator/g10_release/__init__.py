"""Carries out plans by the rules of G10's published simulator, see ``interface.release``."""

from __future__ import annotations

from experiments.memory.interface.paged import PagedStep
from experiments.memory.interface.plan import MemoryPlan
from experiments.memory.interface.release import PagingRelease, Release, TwoEndedRelease, WaitingRelease
from experiments.memory.simulator.g10_release.paging import PagingSteps
from experiments.memory.simulator.g10_release.two_ended import TwoEndedStep
from experiments.memory.simulator.g10_release.waiting import WaitingStep
from experiments.memory.simulator.prepared import Prepared
from experiments.memory.simulator.recorder import UNWATCHED, RunRecorder
from experiments.memory.simulator.report import MemorySimulation

__all__ = ["carry_out"]


def carry_out(
    prepared: Prepared, plan: MemoryPlan, rules: Release, recorder: RunRecorder = UNWATCHED
) -> MemorySimulation:
    """``plan`` by ``rules``; ``Infeasible`` names the op that finds no pages."""
    paged, machine = PagedStep(prepared.step), prepared.machine
    if isinstance(rules, TwoEndedRelease):
        return TwoEndedStep(paged, machine, plan, recorder).run()
    if isinstance(rules, WaitingRelease):
        return WaitingStep(paged, machine, plan, rules.space_factor, recorder).run()
    if isinstance(rules, PagingRelease):
        return PagingSteps(paged, machine, plan, rules, recorder).run()
    raise TypeError(f"no engine carries out {type(rules).__name__}")
