"""The figures of a serving plan."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from experiments.serving.interface import ServingPlan
from experiments.serving.simulator.request_times import NO_OBJECTIVE, LatencyObjective, RequestTimes
from experiments.workloads.requests import RequestTrace
from experiments.workloads.step import Floats


def figures(
    plan: ServingPlan, trace: RequestTrace, objective: LatencyObjective = NO_OBJECTIVE
) -> dict[str, float]:
    """Return the metrics of ``plan``.

    Times are over answered requests; rejected and unfinished ones miss the objective.

    Normalized latency is (answer - arrival) / output tokens. The span of rates is first arrival to last
    answer.
    """
    times = RequestTimes.of(plan, trace)
    rejected = sum(served.rejected for served in plan.served)
    answered = len(times.latency)
    out = {
        "requests": float(len(trace)),
        "rejected_requests": float(rejected),
        "unfinished_requests": float(len(trace) - answered - rejected),
        "iterations": float(plan.passes),
        "peak_kv_tokens": float(max((row.kv_reserved for row in plan.iterations), default=0)),
    }
    if plan.extrapolated is not None:
        out["extrapolated_steps"] = float(plan.extrapolated)
    if not answered:
        return out | ({"slo_attainment": 0.0, "goodput": 0.0} if objective.is_told(trace) else {})
    for name, values in (("ttft", times.ttft), ("tpot", times.tpot), ("latency", times.latency)):
        out |= _summary(name, values[~np.isnan(values)])
    out |= _delays(plan, trace)
    out["normalized_latency_p50"] = float(np.median(times.normalized))
    out |= _memory(plan, trace) | _errors(trace, out)
    if len(plan.gaps):
        out["tbt_p99"] = float(np.percentile(np.frombuffer(plan.gaps), 99))
    return out | _rates(plan, trace, objective, times)


def _delays(plan: ServingPlan, trace: RequestTrace) -> dict[str, float]:
    """How long requests wait until they are in a pass for the first time."""
    waits = [s.admitted - trace.arrival[s.request] for s in plan.served if s.admitted == s.admitted]
    return {"scheduling_delay_p50": float(np.median(waits))} if waits else {}


def _memory(plan: ServingPlan, trace: RequestTrace) -> dict[str, float]:
    """Of a plan over blocks; averages are over time."""
    log, seconds = plan.memory, [row.end - row.start for row in plan.iterations]
    if log is None or not seconds:
        return {}
    drafts = {}
    if log.verifications:
        drafts["tokens_per_verification"] = log.verified_tokens / log.verifications
    if log.logical_seconds:
        drafts["kv_saved_fraction"] = 1 - log.shared_seconds / log.logical_seconds
    used = float(np.average([row.used for row in log.passes], weights=seconds))
    sizes, steps = zip(*((row.requests, row.steps) for row in plan.iterations), strict=True)
    return drafts | {
        "kv_utilization_mean": used / log.total,
        "batch_size_mean": float(np.average(sizes, weights=steps)),
        "preempted_requests": float(log.preempted),
        "preemptions": float(log.preemptions),
        "recomputed_tokens": float(log.recomputed),
        "prefix_hit_fraction": log.hits / float(trace.prompt.sum()),
    }


def _errors(trace: RequestTrace, found: Mapping[str, float]) -> dict[str, float]:
    """Our means over those of a real server, less 1, where the trace has its times."""
    truth = RequestTimes.of_real_server(trace)
    if truth is None:
        return {}
    later = truth.tpot[~np.isnan(truth.tpot)]
    means = {
        "ttft": float(truth.ttft.mean()),
        "tpot": float(later.mean()) if len(later) else 0.0,
        "latency": float(truth.latency.mean()),
    }
    return {f"{name}_error": found[f"{name}_mean"] / mean - 1 for name, mean in means.items() if mean}


def _summary(name: str, values: Floats) -> dict[str, float]:
    if not len(values):
        return {}
    shares = (50, 90, 95, 99)
    found = zip(shares, np.percentile(values, shares).tolist(), strict=True)
    return {f"{name}_mean": float(values.mean())} | {f"{name}_p{share}": value for share, value in found}


def _rates(
    plan: ServingPlan, trace: RequestTrace, objective: LatencyObjective, times: RequestTimes
) -> dict[str, float]:
    span = max(served.answered for served in plan.served if served.answered == served.answered)
    span -= float(trace.arrival[0])
    tokens = sum(int(trace.output[s.request]) for s in plan.served if s.answered == s.answered)
    out = {"throughput": len(times.latency) / span, "tokens_per_second": tokens / span}
    if objective.is_told(trace):
        met = objective.met(times, trace)
        out |= {"slo_attainment": met / len(trace), "goodput": met / span}
    return out
