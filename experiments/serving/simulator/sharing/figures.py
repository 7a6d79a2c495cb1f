"""Figures and curves of a shared device."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from experiments.core.spec import Series
from experiments.serving.interface.sharing import SharedModel
from experiments.serving.interface.sharing_plan import SharedRequest, SharingPlan

#: Seconds by which an answer may be over its objective: sums of the same terms in another order.
ROUNDING = 1e-9


def sharing_figures(
    plan: SharingPlan, alone: SharingPlan, models: Sequence[SharedModel], duration: float
) -> dict[str, float]:
    """Return the figures of ``plan``; ``alone`` is the same without the work that is not real-time.

    Goodput is by the scenario's ``duration``, throughput by the time until the last answer.
    """
    answered = [one for one in plan.requests if one.answered is not None]
    figures = {"requests": float(len(plan.requests))}
    figures["unfinished_requests"] = float(len(plan.requests) - len(answered))
    if answered:
        latency = _latencies(answered)
        figures["latency_mean"] = float(latency.mean())
        for percent in (50, 90, 95, 99):
            figures[f"latency_p{percent}"] = float(np.percentile(latency, percent))
        figures["throughput"] = len(answered) / plan.end
        figures["realtime_overhead"] = float(latency.mean() / _latencies(alone.requests).mean() - 1)
    switched = [one for one in answered if one.is_switch]
    if switched:
        figures["switch_time_mean"] = float(_latencies(switched).mean())
    preempting = [
        one.started - (one.arrival if one.prepared is None else one.prepared)
        for one in answered
        if not one.found_idle and one.started is not None
    ]
    if preempting:
        figures["preemption_latency_p99"] = float(np.percentile(preempting, 99))
    if any(not model.is_real_time for model in models):
        figures["best_effort_throughput"] = _best_effort_passes(plan, models) / plan.end
    return figures | _attainment(plan, models, duration)


def _attainment(plan: SharingPlan, models: Sequence[SharedModel], duration: float) -> dict[str, float]:
    """Where models tell objectives, the share of requests within them, and those a second.

    Requests without an answer miss; a model without an objective asks for an answer alone.
    """
    if not plan.requests or all(model.slo == math.inf for model in models if model.is_real_time):
        return {}
    met = sum(
        one.answered is not None and one.answered - one.arrival <= models[one.model].slo + ROUNDING
        for one in plan.requests
    )
    return {"slo_attainment": met / len(plan.requests), "goodput": met / duration}


def _latencies(requests: Sequence[SharedRequest]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([one.answered - one.arrival for one in requests if one.answered is not None])


def _best_effort_passes(plan: SharingPlan, models: Sequence[SharedModel]) -> int:
    return sum(count for count, model in zip(plan.passes, models, strict=True) if not model.is_real_time)


def sharing_curves(plan: SharingPlan) -> dict[str, Series]:
    """Return the latency of each request over its arrival."""
    answered = [one for one in plan.requests if one.answered is not None]
    arrival = [one.arrival for one in answered]
    return {"latency": Series("s", arrival, _latencies(answered).tolist())} if answered else {}
