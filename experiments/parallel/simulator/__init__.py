"""The parallel simulator: a training step of a plan on a cluster (a window of them where it is
asynchronous).
"""

from __future__ import annotations

from dataclasses import replace

from experiments.core.errors import ImpossiblePlan
from experiments.parallel.interface import (
    Evaluation,
    ParallelPlan,
    PlanningEstimate,
    violations,
)
from experiments.parallel.interface.parameter_servers import has_servers
from experiments.parallel.simulator.asynchrony import pipeline_asynchrony
from experiments.parallel.simulator.build import Builder
from experiments.parallel.simulator.memory import check_fits, refuse_too_large, usages
from experiments.parallel.simulator.report import StepSimulation, WorkerLane, report
from experiments.parallel.simulator.server_report import simulate_servers
from experiments.parallel.simulator.tasks import Deadlock, TaskTimes, replay
from experiments.parallel.simulator.traffic import NetworkTransfer, transfers

__all__ = [
    "Deadlock",
    "NetworkTransfer",
    "StepSimulation",
    "WorkerLane",
    "evaluate",
    "refuse_impossible",
    "simulate",
    "simulate_with_traffic",
]


def simulate(plan: ParallelPlan, estimate: PlanningEstimate) -> StepSimulation:
    """Carry out ``plan`` on the estimate's devices.

    ``ImpossiblePlan`` for one that breaks the rules of plans; ``Deadlock`` names the slot that never starts;
    ``Infeasible`` when a device lacks memory (names the stage, the device and the missing bytes).
    """
    return _carried_out(plan, estimate)[0]


def simulate_with_traffic(
    plan: ParallelPlan, estimate: PlanningEstimate
) -> tuple[StepSimulation, list[NetworkTransfer]]:
    """Return the simulated step and every message with its times.

    None of a plan with parameter servers, whose pieces it adds up.
    """
    found, replayed = _carried_out(plan, estimate)
    return found, transfers(*replayed) if replayed else []


def _carried_out(
    plan: ParallelPlan, estimate: PlanningEstimate
) -> tuple[StepSimulation, tuple[Builder, TaskTimes] | None]:
    _refuse_violations(plan, estimate)
    estimate = estimate.of_plan(plan)
    estimate.show_life()
    if has_servers(plan):
        return simulate_servers(plan, estimate), None
    builder = Builder(plan, estimate)
    refuse_too_large(builder)
    built = builder.build()
    times = replay(built.graph, progress=estimate.progress)
    memory = usages(built, times)
    check_fits(built, memory)
    free = replay(built.graph, free_messages=True, progress=estimate.progress)
    found = report(built, times, free, memory)
    if plan.training is not None and plan.training.weights is not None:
        found = replace(found, asynchrony=pipeline_asynchrony(plan, estimate))
    return found, (built, times)


def refuse_impossible(plan: ParallelPlan, estimate: PlanningEstimate) -> None:
    """Raise ``ImpossiblePlan`` or ``Deadlock`` for a plan that no hardware carries out, fit or not."""
    _refuse_violations(plan, estimate)
    estimate = estimate.of_plan(plan)
    if not has_servers(plan):  # a server answers whoever asks
        replay(Builder(plan, estimate).build().graph, progress=estimate.progress)


def _refuse_violations(plan: ParallelPlan, estimate: PlanningEstimate) -> None:
    wrong = violations(plan, estimate.model, estimate.cluster)
    if wrong:
        raise ImpossiblePlan(wrong)


def evaluate(plan: ParallelPlan, estimate: PlanningEstimate) -> Evaluation:
    """The figures that a planner asks for."""
    return simulate(plan, estimate).evaluation
