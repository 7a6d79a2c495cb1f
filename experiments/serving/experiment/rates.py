"""The highest rate at which the requests of a trace are served as is wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count

from experiments.core.errors import BadInput
from experiments.core.progress import Progress
from experiments.core.rate_search import MOST_TRIALS, RateGoal, find_highest
from experiments.serving.interface import ServingPolicy
from experiments.serving.interface.paged import PagedPolicy
from experiments.serving.interface.phases import PhasePolicy
from experiments.serving.simulator import LatencyObjective
from experiments.workloads.requests import RequestTrace

TracePolicy = ServingPolicy | PagedPolicy | PhasePolicy
WHERE = "knobs.wanted_attainment"


def objective_of(policy: TracePolicy) -> LatencyObjective:
    """What the policy's knobs ask of every request."""
    normalized = None if isinstance(policy, PhasePolicy) else policy.slo_normalized
    return LatencyObjective(policy.slo_ttft, policy.slo_tpot, normalized)


def goal_of(policy: TracePolicy) -> RateGoal:
    """What the policy's knobs ask of a rate."""
    is_left = isinstance(policy, PhasePolicy) and not policy.find_rate
    attainment = None if is_left else policy.wanted_attainment
    return RateGoal(attainment, policy.slo_tbt_p99, policy.slo_delay_p50)


def max_rate(
    trace: RequestTrace,
    policy: TracePolicy,
    serve: Callable[[RequestTrace], Mapping[str, float]],
    progress: Progress,
) -> dict[str, float]:
    """``max_rate`` (requests/s), where the policy has a goal for the figures that it gives; 0: at no rate.

    The same requests come closer together or further apart, all gaps in proportion, in at most twelve
    simulations. ``BadInput`` where nothing says what is in time, or the trace has no rate.
    """
    goal = goal_of(policy)
    if not goal.is_asked:
        return {}
    if goal.attainment is not None and not objective_of(policy).is_told(trace):
        expected = "slo_ttft, slo_tpot or slo_normalized, or requests with an slo of their own"
        raise BadInput("nothing says what is in time", WHERE, expected)
    span = float(trace.arrival[-1] - trace.arrival[0])
    if not span:
        raise BadInput("all requests come at once, so they have no rate", WHERE, "requests over some time")
    trials = count()

    def attains(load: float) -> bool:
        progress(next(trials) / MOST_TRIALS, f"{load:.3g} times the load")
        return goal.is_met(serve(replace(trace, arrival=trace.arrival / load, measured=None)))

    return {"max_rate": (len(trace) - 1) / span * find_highest(attains)}
