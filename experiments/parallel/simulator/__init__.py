"""The parallel simulator: a training step of a plan on a cluster (a window of them where it is asynchronous)."""

from __future__ import annotations

from dataclasses import replace

from experiments.core.errors import BadInput
from experiments.parallel.interface import Estimate, Evaluation, ParallelPlan, violations
from experiments.parallel.interface.exchanges import SUMMATION
from experiments.parallel.interface.parameter_servers import has_servers
from experiments.parallel.simulator.asynchrony import pipeline_asynchrony
from experiments.parallel.simulator.build import Builder
from experiments.parallel.simulator.memory import check_fits, usages
from experiments.parallel.simulator.report import Lane, Simulation, report
from experiments.parallel.simulator.server_report import simulate_servers
from experiments.parallel.simulator.tasks import Times, replay
from experiments.parallel.simulator.traffic import Transfer, transfers

__all__ = ["Lane", "Simulation", "Transfer", "evaluate", "simulate", "simulate_with_traffic"]


def simulate(plan: ParallelPlan, estimate: Estimate) -> Simulation:
    """Carry out ``plan``.

    ``BadInput`` for a plan that cannot be carried out; ``Infeasible`` when its schedule deadlocks (names the slot) or
    a device lacks memory (names the stage, the device and the missing bytes).
    """
    return _carried_out(plan, estimate)[0]


def simulate_with_traffic(plan: ParallelPlan, estimate: Estimate) -> tuple[Simulation, list[Transfer]]:
    """``simulate``, and every message with its times; none of a plan with parameter servers, whose pieces it adds up."""
    found, replayed = _carried_out(plan, estimate)
    return found, transfers(*replayed) if replayed else []


def _carried_out(plan: ParallelPlan, estimate: Estimate) -> tuple[Simulation, tuple[Builder, Times] | None]:
    wrong = violations(plan, estimate.model, estimate.cluster)
    if wrong:
        raise BadInput(wrong[0], "plan", "a plan without violations")
    if has_servers(plan):
        return simulate_servers(plan, estimate), None
    if plan.synchronisation.kind not in ("all_reduce", SUMMATION) or plan.synchronisation.staleness != 0:
        raise BadInput("an all-reduce has no staleness", "plan.synchronisation", "a parameter_server, or 0")
    built = Builder(plan, estimate).build()
    times = replay(built.graph)
    memory = usages(built, times)
    check_fits(built, memory)
    found = report(built, times, replay(built.graph, free_messages=True), memory)
    if plan.training is not None and plan.training.weights is not None:
        found = replace(found, asynchrony=pipeline_asynchrony(plan, estimate))
    return found, (built, times)


def evaluate(plan: ParallelPlan, estimate: Estimate) -> Evaluation:
    """The figures that a planner asks for."""
    return simulate(plan, estimate).evaluation
