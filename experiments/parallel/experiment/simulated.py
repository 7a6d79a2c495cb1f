"""One parallel run simulated: figures of the step, curves of memory, and the timeline of slots
and messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.core.spec import Result, RunSpec, Series
from experiments.parallel.interface import ParallelPlan, PlanningEstimate
from experiments.parallel.simulator import StepSimulation, WorkerLane, simulate_with_traffic, traffic

#: Workers whose memory curve is drawn, points of a curve, and lanes and slots of a timeline that are kept in
#: an outcome.
MOST_CURVES, MOST_POINTS, MOST_LANES, MOST_EVENTS = 16, 2000, 256, 20000
#: Messages that are listed one by one; all of them count in the sums.
MOST_MESSAGES = 8000


def simulate_plan(spec: RunSpec, plan: ParallelPlan, estimate: PlanningEstimate) -> Result:
    """Figures, curves and timeline of the plan's step on the cluster."""
    found, messages = simulate_with_traffic(plan, estimate)
    estimate.show_life()
    per_worker = {**_per_worker(plan, found), "capacity_by_worker": _capacities(plan, estimate)}
    return Result(
        metrics=simulated_metrics(spec, plan, estimate, found),
        series={**_memory_curves(plan, found), **_bubbles(found), **found.asynchrony.series},
        plan={**plan.to_json(), "timeline": _timeline(plan, found.lanes, messages), **per_worker},
    )


def simulated_metrics(
    spec: RunSpec, plan: ParallelPlan, estimate: PlanningEstimate, found: StepSimulation
) -> dict[str, float]:
    """Every figure of a simulated step by its name in the catalog.

    ``persistent_bytes`` is of the fullest device.
    """
    metrics = {
        "step_time": found.step_time / plan.steps,
        "bubble_fraction": found.bubble_fraction,
        "exposed_communication_time": found.exposed_communication_time / plan.steps,
        "communication_time": found.communication_time / plan.steps,
        "recompute_time": found.recompute_time / plan.steps,
        "update_time": found.update_time / plan.steps,
        "communication_bytes": found.communication_bytes / plan.steps,
        "peak_memory_per_device": found.peak_memory,
        "mean_peak_memory_per_device": found.mean_peak_memory,
        "peak_reserved_per_device": found.peak_memory - estimate.reserved_bytes,
        "peak_reserved_on_first_device": found.memory[0].peak - estimate.reserved_bytes,
        "persistent_bytes": max(usage.persistent for usage in found.memory),
        "samples_per_second": found.samples_per_second,
        "mfu": found.mfu,
        "hfu": found.hfu,
        "flops": found.model_flops / plan.steps,
        "devices": float(len(plan.devices)),
        **found.asynchrony.metrics,
    }
    sequence = estimate.model.facts.get("sequence")
    if sequence:
        metrics["tokens_per_second"] = found.samples_per_second * sequence
    steps = spec.workload.options.steps
    if steps is not None:
        metrics["jct"] = metrics["step_time"] * steps
    return metrics


def _memory_curves(plan: ParallelPlan, found: StepSimulation) -> dict[str, Series]:
    """The first replica of each stage."""
    workers = list(dict.fromkeys(stage.workers[0] for stage in plan.stages))[:MOST_CURVES]
    curves = {}
    for worker in workers:
        usage, device = found.memory[worker], plan.workers[worker].devices[0]
        width = -(-len(usage.times) // MOST_POINTS)
        starts = range(0, len(usage.times), width)
        curves[f"memory_device_{device}"] = Series(
            "bytes",
            [usage.times[i] for i in starts],
            [max(usage.bytes[i : i + width]) for i in starts],
        )
    return curves


def _bubbles(found: StepSimulation) -> dict[str, Series]:
    devices = [float(lane.devices[0]) for lane in found.lanes]
    return {"bubble_by_device": Series("fraction", devices, found.bubble_by_worker, x_unit="device")}


def _timeline(
    plan: ParallelPlan, lanes: tuple[WorkerLane, ...], messages: Sequence[traffic.NetworkTransfer]
) -> dict[str, Any]:
    """Whole lanes, ``MOST_LANES`` or as many as ``MOST_EVENTS`` events allow: one replica of every stage
    before the others.
    """
    kept: dict[int, dict[str, Any]] = {}
    events = 0
    for worker in _representatives_first(plan):
        events += len(lanes[worker].events)
        if len(kept) == MOST_LANES or (kept and events > MOST_EVENTS):
            break
        kept[worker] = {"worker": worker, **lanes[worker].to_json()}
    return {
        "lanes": [kept[worker] for worker in sorted(kept)],
        "truncated": len(kept) < len(lanes),
        "messages": traffic.columns(messages, kept, MOST_MESSAGES),
        "communication": traffic.totals(messages),
    }


def _representatives_first(plan: ParallelPlan) -> list[int]:
    first = dict.fromkeys(stage.workers[0] for stage in plan.stages)
    return list(first | dict.fromkeys(range(len(plan.workers))))


def _capacities(plan: ParallelPlan, estimate: PlanningEstimate) -> list[int]:
    """Bytes of the smallest device of each worker."""
    return [
        min(estimate.devices[device].memory_bytes for device in worker.devices) for worker in plan.workers
    ]


def _per_worker(plan: ParallelPlan, found: StepSimulation) -> dict[str, Any]:
    return {
        "live_micro_batches": [usage.live_micro_batches for usage in found.memory],
        "live_by_stage": [
            {str(stage): most for stage, most in usage.live_by_stage.items()} for usage in found.memory
        ],
        "peak_memory_by_worker": [usage.peak for usage in found.memory],
        "communication_by_worker": [
            bytes_handed_over(plan, found, worker) for worker in range(len(plan.workers))
        ],
    }


def bytes_handed_over(plan: ParallelPlan, found: StepSimulation, worker: int) -> dict[str, float]:
    """Bytes that the worker's first device hands over in a step, by kind."""
    by_kind = found.communication_by_kind[plan.workers[worker].devices[0]]
    return {kind: size / plan.steps for kind, size in by_kind.items()}
