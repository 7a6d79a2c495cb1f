"""Who says which of a planner's plans is best: its own costs, as in its paper, or the simulator."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.core.errors import Infeasible
from experiments.parallel.interface import ParallelPlan, PlanningEstimate

#: The simulator, by the time of a step, or a planner's own costs.
JUDGES = SIMULATOR, COSTS = "simulator", "costs"


def choose_best(
    judge: str, estimate: PlanningEstimate, plans: Mapping[str, ParallelPlan], costs: Mapping[str, float]
) -> tuple[str, dict[str, float | None]]:
    """Return the best of ``plans`` by its simulated step, or by ``costs``; and what was simulated.

    By costs the best that fits; the first of equals.
    """
    if judge == SIMULATOR:
        return fastest(estimate, plans)
    ordered = sorted(plans, key=costs.__getitem__)
    return next((name for name in ordered if fits(estimate, plans[name])), ordered[0]), {}


def fits(estimate: PlanningEstimate, plan: ParallelPlan) -> bool:
    """Whether no device lacks memory, which is the simulator's answer whoever judges."""
    try:
        estimate.evaluate(plan)
    except Infeasible:
        return False
    return True


def fastest(
    estimate: PlanningEstimate, candidates: Mapping[str, ParallelPlan]
) -> tuple[str, dict[str, float | None]]:
    """Return the candidate with the shortest simulated step among those that fit, and all times.

    Else the one that lacks fewest bytes (of equals the first). The seconds of each; nothing where it does
    not fit.
    """
    seconds: dict[str, float | None] = {}
    rank: dict[str, tuple[bool, float]] = {}
    for name, plan in candidates.items():
        try:
            seconds[name] = estimate.evaluate(plan).step_time
            rank[name] = False, seconds[name] or 0.0
        except Infeasible as error:
            seconds[name] = None
            rank[name] = True, error.missing or 0.0
    return min(rank, key=rank.__getitem__), seconds
