"""The live runner: a plan carried out by torch in several processes of this host, and its gradients checked.

Processes meet through a file and talk over gloo on the loopback interface (NCCL where this host has a GPU for
each).
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from experiments.core.errors import LabError
from experiments.core.progress import Progress, part
from experiments.core.spec import Result
from experiments.parallel.interface import ParallelPlan
from experiments.parallel.live.asynchronous import measure_training
from experiments.parallel.live.calibration import Links, links_of, timed_layers
from experiments.parallel.live.job import STEPS, Job
from experiments.parallel.live.launch import launch
from experiments.parallel.live.model import OPTIMIZERS, built
from experiments.parallel.live.modules import operator_times, units
from experiments.parallel.live.places import Places
from experiments.parallel.live.runner import by_torch, refuse
from experiments.workloads.layers import LayerGraph
from experiments.workloads.model import ModelSource

__all__ = ["Calibration", "Reference", "calibrate", "difference", "measure", "single_process"]


def measure(
    plan: ParallelPlan, model: LayerGraph, source: ModelSource, seed: int, progress: Progress
) -> Result:
    """Carry out ``plan`` with one process for each device and report what was measured.

    ``max_gradient_error`` is the largest absolute difference between any gradient after the first step and
    that of one process on the same global batch. ``step_time`` is the median over the timed steps of the
    slowest rank's time. ``BadInput`` for what is simulated only; ``LabError`` when a process fails or hangs.
    No process outlives this call.
    """
    if plan.training is not None:
        return measure_training(plan, model, source, seed, progress)
    refuse(Job(plan, model.layer, source, seed, Path()))
    with tempfile.TemporaryDirectory(prefix="lab-parallel-") as folder:
        job = Job(plan, model.layer, source, seed, Path(folder))
        job.save()
        reference = single_process(job)
        progress(0.2, "single process done")
        launch(job, part(progress, 0.2, 1.0))
        reports = [job.report(rank) for rank in range(job.ranks)]
        errors = {
            "max_gradient_error": difference(job, "gradients", reference.gradients),
            "max_parameter_difference": difference(job, "weights", reference.weights),
        }
    return Result(
        metrics=_metrics(plan, reports) | errors,
        plan={**plan.to_json(), "ranks": reports, "communication_by_worker": _by_worker(plan, reports)},
        notes={
            "backend": reports[0]["backend"],
            "device": reports[0]["device"],
            "step_time_iqr": _spread(_slowest(reports, "step_times")),
        },
    )


@dataclass(frozen=True)
class Calibration:
    """What a prediction counts with, as a measured run saw it.

    - ``layers``: the plan's layers with the times of a micro-batch.
    - ``links``: what explains the messages' times.
    - ``exchange``: when the runner exchanges weights and gradients.
    - ``buckets``: which layers' together, where that is its own choice.
    - ``updates``: each worker's seconds of an update.
    """

    layers: LayerGraph
    links: Links | None
    exchange: str
    buckets: tuple[tuple[int, int], ...]
    updates: tuple[float, ...]


def calibrate(
    plan: ParallelPlan,
    model: LayerGraph,
    source: ModelSource,
    reports: list[dict[str, Any]],
    progress: Progress,
) -> Calibration:
    """What a prediction stands on, as the ranks of a measured run saw it."""
    loaded = statistics.median(_slowest(reports, "passes"))
    layers = timed_layers(source, plan.micro_batch_samples, len(reports), loaded, progress)
    if model.transformer is not None:
        layers = operator_times(model, layers, source)
    links = links_of(plan, reports[0]["messages"], len(reports)) if len(reports) > 1 else None
    places = Places(plan)
    updates = tuple(reports[places.rank(worker, 0)]["update"] for worker in range(len(plan.workers)))
    buckets = units(model.layer) if plan.zero and by_torch(plan) else ()
    return Calibration(layers, links, reports[0]["exchange"], buckets, updates)


def _by_worker(plan: ParallelPlan, reports: list[dict[str, Any]]) -> list[dict[str, int]]:
    """Bytes that the worker's first rank hands over in a step, by kind."""
    places = Places(plan)
    return [reports[places.rank(worker, 0)]["bytes_by_collective"] for worker in range(len(plan.workers))]


def _slowest(reports: list[dict[str, Any]], what: str) -> list[float]:
    """What ranks begin together takes as long as the slowest of them."""
    return [max(times) for times in zip(*(report[what] for report in reports), strict=True)]


def _spread(seconds: list[float]) -> float:
    """Between the quartiles."""
    low, _, high = statistics.quantiles(seconds, n=4)
    return high - low


def _metrics(plan: ParallelPlan, reports: list[dict[str, Any]]) -> dict[str, float]:
    seconds = statistics.median(_slowest(reports, "step_times"))
    return {
        "step_time": seconds,
        "samples_per_second": plan.batch / seconds,
        "peak_memory_per_device": max(report["peak_bytes"] for report in reports),
        "communication_bytes": max(sum(report["bytes_by_collective"].values()) for report in reports),
        "devices": float(len(reports)),
    }


@dataclass(frozen=True)
class Reference:
    """What one process gets from the same batch: gradients of its first step, weights after its last."""

    gradients: dict[str, Tensor]
    weights: dict[str, Tensor]


def single_process(job: Job, steps: int = STEPS) -> Reference:
    """``steps`` of the whole batch, computed here, on the CPU."""
    made = built(job.source, job.seed, "cpu")
    kind, options = OPTIMIZERS[made.optimizer]
    optimizer = kind(list(made.module.parameters()), **options)
    gradients: dict[str, Tensor] = {}
    for step in range(steps):
        made.module(*made.batch).backward()
        if step == 0:
            gradients = {name: gradient.clone() for name, gradient in made.gradients().items()}
        optimizer.step()
        optimizer.zero_grad()
    return Reference(gradients, {name: p.detach() for name, p in made.module.named_parameters()})


def difference(job: Job, what: str, reference: dict[str, Tensor]) -> float:
    """Largest absolute difference over all parameters and all ranks that hold them.

    It is of ``gradients`` or ``weights``. ``LabError`` when no rank holds some parameter.
    """
    ranks = [job.tensors(what, rank) for rank in range(job.ranks)]
    missing = sorted(set(reference).difference(*ranks))
    if missing:
        raise LabError(f"no rank has the {what} of {missing[0]} (and {len(missing) - 1} more)")
    return max(
        float((value.double() - reference[name].double()).abs().max())
        for found in ranks
        for name, value in found.items()
    )
