"""The highest rate at which the requests of a trace are served as is wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from experiments.core.errors import BadInput
from experiments.core.progress import Progress
from experiments.core.rate_search import (
    MOST_TRIALS,
    PRECISION,
    USUAL_DELAY,
    RateGoal,
    RateSearch,
    find_highest,
)
from experiments.core.spec import Series
from experiments.serving.interface import ServingPolicy
from experiments.serving.interface.paged import PagedPolicy
from experiments.serving.interface.phases import PhasePolicy
from experiments.serving.simulator import LatencyObjective
from experiments.workloads.requests import RequestTrace

TracePolicy = ServingPolicy | PagedPolicy | PhasePolicy
Figures = Mapping[str, float]
WHERE = "knobs.wanted_attainment"
#: By how much of itself a bracket of rates may be wider than one of loads: each is a product of its own.
ROUNDING = 1e-9
#: What rates that were tried are drawn by, with its unit.
TRIED: Mapping[str, str] = {"slo_attainment": "fraction", "tbt_p99": "s", "scheduling_delay_p50": "s"}


class HighestRate(NamedTuple):
    """``max_rate`` (requests/s; 0: none), over the rates that were tried what they gave, and what to doubt.

    Or nothing.
    """

    metrics: Mapping[str, float]
    series: Mapping[str, Series]
    warnings: tuple[str, ...] = ()


NOT_ASKED = HighestRate({}, {})


def objective_of(policy: TracePolicy) -> LatencyObjective:
    """What the policy's knobs ask of every request."""
    normalized = None if isinstance(policy, PhasePolicy) else policy.slo_normalized
    return LatencyObjective(policy.slo_ttft, policy.slo_tpot, normalized)


def goal_of(policy: TracePolicy) -> RateGoal:
    """What the policy's knobs ask of a rate."""
    is_left = isinstance(policy, PhasePolicy) and not policy.find_rate
    attainment = None if is_left else policy.wanted_attainment
    return RateGoal(attainment, policy.slo_tbt_p99, policy.slo_delay_p50 or USUAL_DELAY)


def max_rate(
    trace: RequestTrace,
    policy: TracePolicy,
    serve: Callable[[RequestTrace], Figures],
    progress: Progress,
) -> HighestRate:
    """Return the highest rate where the policy has a goal for the figures that it gives.

    The same requests come closer together or further apart, all gaps in proportion, in at most twelve
    simulations. ``BadInput`` where nothing says what is in time, or the trace has no rate.
    """
    goal = goal_of(policy)
    if not goal.is_asked:
        return NOT_ASKED
    if goal.attainment is not None and not objective_of(policy).is_told(trace):
        expected = "slo_ttft, slo_tpot or slo_normalized, or requests with an slo of their own"
        raise BadInput("nothing says what is in time", WHERE, expected)
    span = float(trace.arrival[-1] - trace.arrival[0])
    if not span:
        raise BadInput("all requests come at once, so they have no rate", WHERE, "requests over some time")
    rate, tried = (len(trace) - 1) / span, list[tuple[float, Figures]]()

    def attains(load: float) -> bool:
        progress(len(tried) / MOST_TRIALS, f"{load:.3g} times the load")
        found = serve(replace(trace, arrival=trace.arrival / load, measured=None))
        tried.append((load * rate, found))
        return goal.is_met(found)

    return highest_of(rate * find_highest(attains), tried, goal)


def highest_of(rate: float, tried: Sequence[tuple[float, Figures]], goal: RateGoal) -> HighestRate:
    """Return what a search that found ``rate`` tells of it."""
    return HighestRate({"max_rate": rate}, tried_series(tried), doubts_of_search(tried, goal))


def doubts_of_search(tried: Sequence[tuple[float, Figures]], goal: RateGoal) -> tuple[str, ...]:
    """What to know of a search that ran out of simulations: where the highest rate may be."""
    search = RateSearch(precision=PRECISION * (1 + ROUNDING))
    for rate, found in tried:
        search.tell(rate, goal.is_met(found))
    low, high = search.low, search.high
    if not search.is_bounded:  # few requests are served even all at once
        said = f"every rate tried keeps what is asked, up to {low:.4g} requests/s: no highest one is known"
        return (f"{said}; take more requests, or tighter objectives",)
    if not low:
        return (f"no rate tried keeps what is asked, down to {high:.4g} requests/s: no highest one is known",)
    if search.is_narrow:
        return ()
    said = f"the highest rate is known no better than from {low:.4g} to {high:.4g} requests/s"
    return (f"{said}; begin nearer to it: set the workload's rate",)


def tried_series(tried: Sequence[tuple[float, Figures]]) -> dict[str, Series]:
    """What each rate that was tried gave, the lowest first."""
    found = {}
    for name, unit in TRIED.items():
        points = sorted((rate, figures[name]) for rate, figures in tried if name in figures)
        if points:
            rates, values = zip(*points, strict=True)
            found[f"{name}_by_rate"] = Series(unit, rates, values, "requests/s")
    return found
