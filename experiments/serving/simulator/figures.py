"""The figures and curves of a serving plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from experiments.core.spec import Series
from experiments.serving.interface import ServingPlan
from experiments.workloads.ragged import Ints
from experiments.workloads.requests import RequestTrace
from experiments.workloads.step import Floats

#: Points of a curve over time; more iterations are averaged over as many equal stretches.
MAX_POINTS = 1000


@dataclass(frozen=True)
class _Times:
    """By answered ``request``, in s: to the first token, per later token (NaN for one-token answers), to the
    answer.
    """

    request: Ints
    ttft: Floats
    tpot: Floats
    latency: Floats
    normalized: Floats

    @classmethod
    def of(cls, plan: ServingPlan, trace: RequestTrace) -> _Times:
        rows = [(s.request, s.first_token, s.last_token, s.answered) for s in plan.served]
        request, first, last, answered = np.array(rows).reshape(-1, 4).T
        kept = ~np.isnan(answered)
        chosen = request[kept].astype(np.int64)
        arrival, output = trace.arrival[chosen], trace.output[chosen]
        tpot = np.full(len(chosen), np.nan)
        long = output > 1
        tpot[long] = (last[kept] - first[kept])[long] / (output[long] - 1)
        latency = answered[kept] - arrival
        return cls(chosen, first[kept] - arrival, tpot, latency, latency / output)


@dataclass(frozen=True)
class LatencyObjective:
    """Largest time to the first token and per later token (s) that a request may take; ``None``: no limit.

    ``normalized`` is that of its whole latency per token of the answer. A trace may tell for each request the
    time to its answer besides (``slo``).
    """

    ttft: float | None = None
    tpot: float | None = None
    normalized: float | None = None

    def is_told(self, trace: RequestTrace) -> bool:
        return self != LatencyObjective() or trace.slo is not None

    def met(self, times: _Times, trace: RequestTrace) -> int:
        good = np.ones(len(times.ttft), bool)
        if trace.slo is not None:
            good &= ~(times.latency > trace.slo[times.request])
        if self.ttft is not None:
            good &= times.ttft <= self.ttft
        if self.tpot is not None:
            good &= ~(times.tpot > self.tpot)
        if self.normalized is not None:
            good &= times.normalized <= self.normalized
        return int(good.sum())


def figures(
    plan: ServingPlan, trace: RequestTrace, objective: LatencyObjective = LatencyObjective()
) -> dict[str, float]:
    """Return the metrics of ``plan``.

    Times are over answered requests; rejected and unfinished ones miss the objective.

    Normalized latency is (answer - arrival) / output tokens. The span of rates is first arrival to last
    answer.
    """
    times = _Times.of(plan, trace)
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
    truth = trace.measured
    if truth is None:
        return {}
    later = (truth.last_token - truth.first_token)[trace.output > 1] / (trace.output[trace.output > 1] - 1)
    means = {
        "ttft": float((truth.first_token - trace.arrival).mean()),
        "tpot": float(later.mean()) if len(later) else 0.0,
        "latency": float((truth.last_token - trace.arrival).mean()),
    }
    return {f"{name}_error": found[f"{name}_mean"] / mean - 1 for name, mean in means.items() if mean}


def _summary(name: str, values: Floats) -> dict[str, float]:
    if not len(values):
        return {}
    shares = (50, 90, 95, 99)
    found = zip(shares, np.percentile(values, shares).tolist(), strict=True)
    return {f"{name}_mean": float(values.mean())} | {f"{name}_p{share}": value for share, value in found}


def _rates(
    plan: ServingPlan, trace: RequestTrace, objective: LatencyObjective, times: _Times
) -> dict[str, float]:
    span = max(served.answered for served in plan.served if served.answered == served.answered)
    span -= float(trace.arrival[0])
    tokens = sum(int(trace.output[s.request]) for s in plan.served if s.answered == s.answered)
    out = {"throughput": len(times.latency) / span, "tokens_per_second": tokens / span}
    if objective.is_told(trace):
        met = objective.met(times, trace)
        out |= {"slo_attainment": met / len(trace), "goodput": met / span}
    return out


def curves(plan: ServingPlan, trace: RequestTrace) -> Mapping[str, Series]:
    """Return requests in the engine, KV slots reserved and requests waiting over time.

    And the distributions of latencies.
    """
    if not plan.iterations:
        return {}
    rows = np.array([(row.start, row.requests, row.kv_reserved) for row in plan.iterations])
    times = _Times.of(plan, trace)
    grid, batch, reserved = _thin(rows)
    out = {
        "batch_size": Series("requests", grid, batch),
        "kv_reserved": Series("tokens", grid, reserved),
        "queue_length": Series("requests", grid, _waiting(plan, trace, grid)),
        "normalized_latency_distribution": _distribution(times.normalized),
        "ttft_distribution": _distribution(times.ttft),
        "latency_distribution": _distribution(times.latency),
        "tpot_distribution": _distribution(times.tpot[~np.isnan(times.tpot)]),
        **_block_curves(plan),
    }
    return {name: series for name, series in out.items() if len(series.x)}


def _block_curves(plan: ServingPlan) -> dict[str, Series]:
    """Blocks and tokens of passes, of a plan over blocks."""
    if plan.memory is None:
        return {}
    stride = -(-len(plan.iterations) // MAX_POINTS)
    starts = [row.start for row in plan.iterations[::stride]]
    rows = plan.memory.passes[::stride]
    columns = {
        "kv_blocks.used": ("blocks", [row.used for row in rows]),
        "kv_blocks.cached": ("blocks", [row.cached for row in rows]),
        "prefill_tokens": ("tokens", [row.prefill for row in rows]),
        "decode_tokens": ("tokens", [row.decode for row in rows]),
    }
    return {name: Series(unit, starts, values) for name, (unit, values) in columns.items()}


def _thin(rows: Floats) -> tuple[list[float], list[float], list[float]]:
    """Every n-th iteration, so that at most ``MAX_POINTS`` are left."""
    kept = rows[:: -(-len(rows) // MAX_POINTS)]
    return kept[:, 0].tolist(), kept[:, 1].tolist(), kept[:, 2].tolist()


def _waiting(plan: ServingPlan, trace: RequestTrace, grid: list[float]) -> list[float]:
    """Requests that arrived and were neither admitted nor rejected, at each time of ``grid``."""
    taken = np.array([trace.arrival[s.request] if s.rejected else s.admitted for s in plan.served])
    gone = np.searchsorted(np.sort(taken[~np.isnan(taken)]), grid, side="right")
    here = np.searchsorted(trace.arrival, grid, side="right")
    waiting: list[float] = (here - gone).astype(np.float64).tolist()
    return waiting


def _distribution(values: Floats) -> Series:
    quantiles = np.linspace(0, 1, min(len(values), 200)) if len(values) else np.empty(0)
    points = np.quantile(values, quantiles).tolist() if len(values) else []
    return Series("fraction", points, quantiles.tolist())
