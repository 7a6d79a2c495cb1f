"""One run of the parallel family: a policy places the model, the simulator or torch carries the plan out."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

from experiments.core.errors import BadInput
from experiments.core.policy import Policy
from experiments.core.progress import Progress, part
from experiments.core.spec import Result, RunSpec, Series
from experiments.hardware import Hardware, Link, NodeGroup, resolve
from experiments.parallel.interface import (
    Estimate,
    LivePolicy,
    ParallelPlan,
    ParallelPolicy,
    model_estimate,
    violations,
)
from experiments.parallel.simulator import (
    Lane,
    Simulation,
    evaluate,
    simulate,
    simulate_with_traffic,
    traffic,
)
from experiments.sources import Loaded, layers_of
from experiments.workloads.model import ModelSource
from experiments.workloads.transformer_layers import CAPTURED, OPERATORS

#: Workers whose memory curve is drawn, points of a curve, and lanes and slots of a timeline that are kept in an outcome.
MOST_CURVES, MOST_POINTS, MOST_LANES, MOST_EVENTS = 16, 2000, 256, 20000
#: Messages that are told one by one; all of them are added up.
MOST_MESSAGES = 8000


def carry_out(spec: RunSpec, policy: Policy, progress: Progress) -> Result:
    """Simulate on the named cluster, or measure with ``policy.processes`` processes on this host."""
    placed = place(spec, policy, part(progress, 0.0, 0.6))
    plan, estimate, loaded = placed.plan, placed.estimate, placed.loaded
    if spec.mode == "measured":
        wrong = tuple(violations(plan, estimate.model, estimate.cluster))
        result = replace(_measured(spec, plan, loaded, estimate, part(progress, 0.6, 1.0)), violations=wrong)
    else:  # the simulator refuses a plan that violates anything
        result = _simulated(spec, plan, estimate)
    return replace(
        result,
        workload_sha256=loaded.sha256,
        notes={
            **result.notes,
            "hardware": estimate.cluster.to_json(),
            "assumed": list(loaded.assumed),
            "warnings": list(loaded.warnings),
        },
    )


@dataclass(frozen=True)
class Placed:
    """A policy's plan, and what it was made from."""

    plan: ParallelPlan
    estimate: Estimate
    loaded: Loaded


def place(spec: RunSpec, policy: Policy, progress: Progress) -> Placed:
    """The plan of ``spec`` without carrying it out."""
    placer = cast(ParallelPolicy, policy)
    cluster = _cluster(spec, placer)
    layers = placer.layers if spec.mode == "simulated" or placer.layers == OPERATORS else CAPTURED
    model, loaded = layers_of(spec.workload, cluster.device, part(progress, 0.0, 0.8), layers)
    options = spec.workload.options
    estimate = model_estimate(
        model, cluster, evaluate, options.dtype, options.optimizer, spec.seed, part(progress, 0.8, 1.0)
    )
    plan = placer.place(model, cluster, options.batch or model.batch, estimate)
    progress(1.0, "placed")
    return Placed(plan, estimate, loaded)


def _cluster(spec: RunSpec, policy: ParallelPolicy) -> Hardware:
    hardware = resolve(spec.hardware)
    if spec.mode == "simulated":
        return hardware
    node = replace(hardware.node, device_count=cast(LivePolicy, policy).processes)
    return replace(hardware, groups=(NodeGroup(1, node),))


def _simulated(spec: RunSpec, plan: ParallelPlan, estimate: Estimate) -> Result:
    found, messages = simulate_with_traffic(plan, estimate)
    per_worker = {**_per_worker(plan, found), "capacity_by_worker": _capacities(plan, estimate)}
    return Result(
        metrics=simulated_metrics(spec, plan, estimate, found),
        series={**_memory_curves(plan, found), **_bubbles(found), **found.asynchrony.series},
        plan={**plan.to_json(), "timeline": _timeline(plan, found.lanes, messages), **per_worker},
    )


def simulated_metrics(
    spec: RunSpec, plan: ParallelPlan, estimate: Estimate, found: Simulation
) -> dict[str, float]:
    """Every figure of a simulated step by its name in the catalogue. ``persistent_bytes`` is of the fullest device."""
    metrics = {
        "step_time": found.step_time / plan.steps,
        "bubble_fraction": found.bubble_fraction,
        "exposed_communication_time": found.exposed_communication_time / plan.steps,
        "communication_time": found.communication_time / plan.steps,
        "communication_bytes": found.communication_bytes / plan.steps,
        "peak_memory_per_device": found.peak_memory,
        "mean_peak_memory_per_device": found.mean_peak_memory,
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


def _memory_curves(plan: ParallelPlan, found: Simulation) -> dict[str, Series]:
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


def _bubbles(found: Simulation) -> dict[str, Series]:
    devices = [float(lane.devices[0]) for lane in found.lanes]
    return {"bubble_by_device": Series("fraction", devices, found.bubble_by_worker, x_unit="device")}


def _timeline(
    plan: ParallelPlan, lanes: tuple[Lane, ...], messages: Sequence[traffic.Transfer]
) -> dict[str, Any]:
    """Whole lanes, ``MOST_LANES`` or as many as ``MOST_EVENTS`` events allow: one replica of every stage before the others."""
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


def _capacities(plan: ParallelPlan, estimate: Estimate) -> list[int]:
    """Bytes of the smallest device of each worker."""
    return [
        min(estimate.devices[device].memory_bytes for device in worker.devices) for worker in plan.workers
    ]


def _per_worker(plan: ParallelPlan, found: Simulation) -> dict[str, Any]:
    return {
        "live_micro_batches": [usage.live_micro_batches for usage in found.memory],
        "live_by_stage": [
            {str(stage): most for stage, most in usage.live_by_stage.items()} for usage in found.memory
        ],
        "peak_memory_by_worker": [usage.peak for usage in found.memory],
        "communication_by_worker": [_handed_over(plan, found, worker) for worker in range(len(plan.workers))],
    }


def _handed_over(plan: ParallelPlan, found: Simulation, worker: int) -> dict[str, float]:
    """Bytes that the worker's first device hands over in a step, by kind."""
    by_kind = found.communication_by_kind[plan.workers[worker].devices[0]]
    return {kind: size / plan.steps for kind, size in by_kind.items()}


@dataclass(frozen=True)
class HandedOver:
    """Bytes that a rank hands over in a step by kind, as the simulator says and as its runner does.

    ``padding`` is what FSDP2 adds, which gives every rank equally many whole rows of each tensor: ZeRO, which divides flat
    buffers, has none.
    """

    rank: int
    simulated: Mapping[str, float]
    counted: Mapping[str, int]
    padding: Mapping[str, float] = field(default_factory=dict)

    def kinds(self) -> list[tuple[str, float, int]]:
        """Simulated with its padding, and counted."""
        names = sorted({*self.simulated, *self.counted})
        return [
            (name, self.simulated.get(name, 0.0) + self.padding.get(name, 0.0), self.counted.get(name, 0))
            for name in names
        ]

    @property
    def agrees(self) -> bool:
        """To the byte; the simulator's shares of layers are fractions."""
        return all(round(simulated) == counted for _, simulated, counted in self.kinds())

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "agrees": self.agrees}


def communication(
    spec: RunSpec, policy: Policy, ranks: Sequence[int], progress: Progress
) -> list[HandedOver]:
    """What some ranks of the plan hand over in a step, simulated and counted under torch's fake process group."""
    placed = place(spec, policy, part(progress, 0.0, 0.5))
    devices = placed.plan.devices
    source = _source_of(spec, placed.loaded)
    for rank in ranks:
        if not 0 <= rank < len(devices):
            raise BadInput(f"rank {rank}", "--ranks", f"from 0 to {len(devices) - 1}")
    found = simulate(placed.plan, placed.estimate).communication_by_kind
    fake = importlib.import_module("experiments.parallel.live.fake")
    more = fake.padding(placed.plan, placed.estimate.model, source) - 1
    rows = []
    for done, rank in enumerate(ranks):
        progress(0.5 + 0.5 * done / len(ranks), f"rank {rank}")
        simulated = dict(found[devices[rank]])
        padding = {kind: size * more for kind, size in simulated.items() if more}
        counted = fake.counted(placed.plan, placed.estimate.model, source, spec.seed, rank)
        rows.append(HandedOver(rank, simulated, counted, padding))
    return rows


def _source_of(spec: RunSpec, loaded: Loaded) -> ModelSource:
    """The model to build; ``BadInput`` for what is no model or cannot be divided."""
    if not isinstance(loaded.value, ModelSource):
        raise BadInput(f"is {loaded.kind}", spec.workload.source, "a model, to be measured")
    if loaded.value.program is not None:
        what = "an exported graph is planned for one batch and runs whole: it cannot be split over processes"
        raise BadInput(what, spec.workload.source, "a model of the zoo or a configuration, or mode simulated")
    return loaded.value


def _measured(
    spec: RunSpec, plan: ParallelPlan, loaded: Loaded, estimate: Estimate, progress: Progress
) -> Result:
    source = _source_of(spec, loaded)
    live = importlib.import_module("experiments.parallel.live")
    result: Result = live.measure(plan, estimate.model, source, spec.seed, part(progress, 0.0, 0.7))
    if plan.training is not None:
        return result
    model, reports = estimate.model, result.plan["ranks"]
    found = live.calibrated(plan, model, source, reports, part(progress, 0.7, 1.0))
    return replace(result, notes={**result.notes, "predicted": _predicted(plan, estimate, found)})


def _predicted(plan: ParallelPlan, estimate: Estimate, calibrated: Any) -> dict[str, Any]:
    """The simulator's figures for the measured plan, on layer times and links measured on this host."""
    links, layers = calibrated.links, calibrated.layers
    cluster = _linked(estimate.cluster, links)
    asked = model_estimate(layers, cluster, evaluate, estimate.dtype, str(layers.facts["optimizer"]))
    asked = replace(asked, exchange=calibrated.exchange, updates=calibrated.updates, walks_again=True)
    waited = replace(plan, overlapped=False)  # a measured step is waited for
    own = replace(plan.synchronisation, buckets=calibrated.buckets or plan.synchronisation.buckets)
    found = simulate(replace(waited, synchronisation=own), asked)
    handed_over = [_handed_over(plan, found, worker) for worker in range(len(plan.workers))]
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


def _linked(cluster: Hardware, links: Any) -> Hardware:
    """``cluster`` with the links that were measured, if any; a fit tells of both ways at once."""
    if links is None:
        return cluster
    sheet = cluster.node.link

    def measured(fit: Any) -> Link:
        return replace(sheet, latency=fit.latency, bandwidth=fit.bandwidth, duplex=True)

    kinds = tuple((kind, measured(fit)) for kind, fit in links.collectives)
    return replace(cluster.linked(measured(links.link)), collectives=kinds)
