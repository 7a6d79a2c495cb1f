"""The highest rate at which enough requests of a trace are within their objectives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count

from experiments.core.errors import BadInput
from experiments.core.progress import Progress
from experiments.serving.interface import ServingPlan, ServingPolicy
from experiments.serving.interface.paged import PagedPolicy
from experiments.serving.planning.highest_rate import MOST_TRIALS, find_highest
from experiments.serving.simulator import LatencyObjective, figures
from experiments.workloads.requests import RequestTrace

WHERE = "knobs.wanted_attainment"


def objective_of(policy: ServingPolicy | PagedPolicy) -> LatencyObjective:
    """What the policy's knobs ask of every request."""
    return LatencyObjective(policy.slo_ttft, policy.slo_tpot, policy.slo_normalized)


def max_rate(
    trace: RequestTrace,
    policy: ServingPolicy | PagedPolicy,
    serve: Callable[[RequestTrace], ServingPlan],
    progress: Progress,
) -> dict[str, float]:
    """``max_rate`` (requests/s), where the policy wants a share of requests in time; 0: at no rate.

    The same requests come closer together or further apart, all gaps in proportion, in at most twelve
    simulations. ``BadInput`` where nothing says what is in time, or the trace has no rate.
    """
    if policy.wanted_attainment is None:
        return {}
    objective, wanted = objective_of(policy), policy.wanted_attainment
    if not objective.is_told(trace):
        expected = "slo_ttft, slo_tpot or slo_normalized, or requests with an slo of their own"
        raise BadInput("nothing says what is in time", WHERE, expected)
    span = float(trace.arrival[-1] - trace.arrival[0])
    if not span:
        raise BadInput("all requests come at once, so they have no rate", WHERE, "requests over some time")
    trials = count()

    def attains(load: float) -> bool:
        progress(next(trials) / MOST_TRIALS, f"{load:.3g} times the load")
        closer = replace(trace, arrival=trace.arrival / load, measured=None)
        return figures(serve(closer), closer, objective)["slo_attainment"] >= wanted

    return {"max_rate": (len(trace) - 1) / span * find_highest(attains)}
