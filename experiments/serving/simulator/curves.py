"""The curves of a serving plan: over time, over requests, over the tokens of a pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.core.spec import Series
from experiments.serving.interface import Iteration, ServingPlan
from experiments.serving.interface.plan import BlockLog
from experiments.serving.simulator.request_times import NO_OBJECTIVE, LatencyObjective, RequestTimes
from experiments.workloads.requests import RequestTrace
from experiments.workloads.step import Floats

#: Points of a curve over time; of more iterations every so-many-th is kept.
MAX_POINTS = 1000
#: Points of a distribution.
QUANTILES = 200


def curves(
    plan: ServingPlan, trace: RequestTrace, objective: LatencyObjective = NO_OBJECTIVE
) -> Mapping[str, Series]:
    """Return what fills the engine over time, what passes take, and the distributions of latencies.

    Next to these stand those of a real server where the trace has its times, and where anything is asked the
    share of requests that keep so many times their objective.
    """
    if not plan.iterations:
        return {}
    times = RequestTimes.of(plan, trace)
    out = {
        **_over_time(plan, trace),
        **_distributions(times, plan),
        **_real_distributions(trace),
        **_by_scale(times, trace, objective),
        **_pass_times(plan.iterations),
    }
    return {name: series for name, series in out.items() if len(series.x)}


def _over_time(plan: ServingPlan, trace: RequestTrace) -> dict[str, Series]:
    stride = -(-len(plan.iterations) // MAX_POINTS)
    rows = plan.iterations[::stride]
    starts = [row.start for row in rows]
    out = {
        "batch_size": Series("requests", starts, [row.requests for row in rows]),
        "kv_reserved": Series("tokens", starts, [row.kv_reserved for row in rows]),
        "queue_length": Series("requests", starts, _waiting(plan, trace, starts)),
    }
    if plan.memory is None:
        return out
    passes = plan.memory.passes[::stride]
    columns = {
        "kv_blocks.used": ("blocks", [row.used for row in passes]),
        "kv_blocks.cached": ("blocks", [row.cached for row in passes]),
        "prefill_tokens": ("tokens", [row.prefill for row in passes]),
        "decode_tokens": ("tokens", [row.decode for row in passes]),
    }
    blocks = {name: Series(unit, starts, values) for name, (unit, values) in columns.items()}
    return {**out, **blocks, **_full_memory(plan, plan.memory)}


def _full_memory(plan: ServingPlan, log: BlockLog) -> dict[str, Series]:
    """All blocks from the first pass to the last, and those in use whenever a request was preempted."""
    first, last = plan.iterations[0].start, max(row.end for row in plan.iterations)
    starts = [row.start for row in plan.iterations]
    moments = sorted(since for one in plan.served for since, _ in one.preempted)
    moments = moments[:: -(-len(moments) // MAX_POINTS) or 1]
    places = np.searchsorted(starts, moments, side="right") - 1
    used = [log.passes[max(place, 0)].used for place in places.tolist()]
    return {
        "kv_blocks.capacity": Series("blocks", [first, last], [log.total, log.total]),
        "kv_blocks.preemptions": Series("blocks", moments, used),
    }


def _waiting(plan: ServingPlan, trace: RequestTrace, grid: Sequence[float]) -> Sequence[float]:
    """Requests that arrived and were neither admitted nor rejected, at each time of ``grid``."""
    taken = np.array([trace.arrival[s.request] if s.rejected else s.admitted for s in plan.served])
    gone = np.searchsorted(np.sort(taken[~np.isnan(taken)]), grid, side="right")
    here = np.searchsorted(trace.arrival, grid, side="right")
    waiting: list[float] = (here - gone).astype(np.float64).tolist()
    return waiting


def _distributions(times: RequestTimes, plan: ServingPlan) -> dict[str, Series]:
    return {
        "normalized_latency_distribution": _distribution(times.normalized),
        "ttft_distribution": _distribution(times.ttft),
        "latency_distribution": _distribution(times.latency),
        "tpot_distribution": _distribution(times.tpot),
        "tbt_distribution": _distribution(np.frombuffer(plan.gaps) if len(plan.gaps) else np.empty(0)),
    }


def _real_distributions(trace: RequestTrace) -> dict[str, Series]:
    """The distributions of a recorded run."""
    truth = RequestTimes.of_real_server(trace)
    if truth is None:
        return {}
    columns = {"ttft": truth.ttft, "latency": truth.latency, "tpot": truth.tpot}
    return {f"{name}_distribution.measured": _distribution(values) for name, values in columns.items()}


def _by_scale(times: RequestTimes, trace: RequestTrace, objective: LatencyObjective) -> dict[str, Series]:
    """The share of all requests that would keep their objectives, were these so many times what they are.

    Of a policy that decides by them it is what became of this run, not of one with other objectives.
    """
    if not objective.is_told(trace) or not len(times.request):
        return {}
    scales = np.sort(objective.scales(times, trace))
    counts = np.unique(np.linspace(1, len(scales), QUANTILES).astype(int))
    shares = (counts / len(trace)).tolist()
    return {"slo_attainment_by_scale": Series("fraction", scales[counts - 1].tolist(), shares, "objectives")}


def _pass_times(iterations: Sequence[Iteration]) -> dict[str, Series]:
    """What a pass took (s) by the tokens that it computed; apart those priced beyond what was measured."""
    within = [row for row in iterations if not row.beyond]
    beyond = [row for row in iterations if row.beyond]
    return {
        name: Series(
            "s", [row.tokens for row in rows], [(row.end - row.start) / row.steps for row in rows], "tokens"
        )
        for name, rows in (("pass_time", _thin(within)), ("pass_time.beyond", _thin(beyond)))
    }


def _thin(rows: Sequence[Iteration]) -> Sequence[Iteration]:
    """Every so-many-th of them."""
    return rows[:: -(-len(rows) // MAX_POINTS) or 1]


def _distribution(values: Floats) -> Series:
    known = np.sort(values[~np.isnan(values)])
    shares = np.linspace(0, 1, min(len(known), QUANTILES)) if len(known) else np.empty(0)
    points = np.quantile(known, shares).tolist() if len(known) else []
    return Series("fraction", points, shares.tolist())
