"""One parallel run measured: torch carries the plan out in processes of this host; and predicted."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from experiments.core import registry
from experiments.core.progress import Progress, part
from experiments.core.spec import Result, RunSpec
from experiments.hardware import Hardware, Link
from experiments.parallel.experiment.placed import source_of
from experiments.parallel.experiment.simulated import bytes_handed_over
from experiments.parallel.interface import ParallelPlan, PlanningEstimate, model_estimate
from experiments.parallel.simulator import evaluate, simulate
from experiments.sources import Loaded


def measure_plan(
    spec: RunSpec, plan: ParallelPlan, loaded: Loaded, estimate: PlanningEstimate, progress: Progress
) -> Result:
    """The plan carried out on this host, and what the simulator predicts of it on times measured here."""
    source = source_of(spec, loaded)
    live = registry.load_module("parallel", "live")
    result: Result = live.measure(plan, estimate.model, source, spec.seed, part(progress, 0.0, 0.7))
    if plan.training is not None:
        return result
    model, reports = estimate.model, result.plan["ranks"]
    found = live.calibrate(plan, model, source, reports, part(progress, 0.7, 1.0))
    return replace(result, notes={**result.notes, "predicted": _predict(plan, estimate, found)})


def _predict(plan: ParallelPlan, estimate: PlanningEstimate, calibrated: Any) -> dict[str, Any]:
    """The simulator's figures for the measured plan, on layer times and links measured on this host."""
    links, layers = calibrated.links, calibrated.layers
    cluster = _with_measured_links(estimate.cluster, links)
    asked = model_estimate(
        layers,
        cluster,
        evaluate,
        estimate.dtype,
        str(layers.facts["optimizer"]),
        precision=estimate.precision,
    )
    asked = replace(asked, exchange=calibrated.exchange, updates=calibrated.updates, walks_again=True)
    waited = replace(plan, overlapped=False)  # a measured step is waited for
    own = replace(plan.synchronization, buckets=calibrated.buckets or plan.synchronization.buckets)
    found = simulate(replace(waited, synchronization=own), asked)
    handed_over = [bytes_handed_over(plan, found, worker) for worker in range(len(plan.workers))]
    return {
        "step_time": found.step_time,
        "peak_memory_per_device": simulate(waited, asked).peak_memory,
        "communication_bytes": max(sum(kinds.values()) for kinds in handed_over),
        "communication_by_worker": handed_over,
        "bubble_fraction": found.bubble_fraction,
        "exposed_communication_time": found.exposed_communication_time,
        "link": None if links is None else asdict(links.link),
        "collectives": {} if links is None else {kind: asdict(found) for kind, found in links.collectives},
        "exchange": calibrated.exchange,
        "update_seconds": max(calibrated.updates),
    }


def _with_measured_links(cluster: Hardware, links: Any) -> Hardware:
    """``cluster`` with the links that were measured, if any; a fit tells of both ways at once."""
    if links is None:
        return cluster
    sheet = cluster.node.link

    def measured_link(fit: Any) -> Link:
        return replace(sheet, latency=fit.latency, bandwidth=fit.bandwidth, duplex=True)

    kinds = tuple((kind, measured_link(fit)) for kind, fit in links.collectives)
    return replace(cluster.with_node_link(measured_link(links.link)), collectives=kinds)
