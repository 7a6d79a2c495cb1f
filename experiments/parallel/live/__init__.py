"""The live runner: a plan carried out by torch in several processes of this host, and its gradients checked.

Processes meet through a file and talk over gloo on the loopback interface (NCCL where this host has a GPU for each).
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

from torch import Tensor

from experiments.core.errors import BadInput, LabError
from experiments.core.progress import Progress, part
from experiments.core.spec import Result
from experiments.parallel.interface import ParallelPlan
from experiments.parallel.live.job import Job
from experiments.parallel.live.launch import launch
from experiments.parallel.live.model import built
from experiments.workloads.layers import LayerGraph
from experiments.workloads.model import ModelSource

__all__ = ["gradient_error", "measure", "single_process_gradients"]


def measure(
    plan: ParallelPlan, model: LayerGraph, source: ModelSource, seed: int, progress: Progress
) -> Result:
    """Carry out ``plan`` with one process for each worker and report what was measured.

    ``max_gradient_error`` is the largest absolute difference between any gradient after the first step and that of
    one process on the same global batch. ``step_time`` is the median over the timed steps of the slowest rank's time.
    ``BadInput`` for what is simulated only; ``LabError`` when a process fails or hangs. No process outlives this call.
    """
    _refuse_simulated_only(plan)
    with tempfile.TemporaryDirectory(prefix="lab-parallel-") as folder:
        job = Job(plan, model.layer, source, seed, Path(folder))
        job.save()
        reference = single_process_gradients(job)
        progress(0.2, "single process done")
        launch(job, part(progress, 0.2, 1.0))
        reports = [job.report(rank) for rank in range(job.ranks)]
        error = gradient_error(reference, [job.gradients(rank) for rank in range(job.ranks)])
    return Result(
        metrics=_metrics(plan, reports, error),
        plan={**plan.to_json(), "ranks": reports},
        notes={"backend": reports[0]["backend"], "device": reports[0]["device"]},
    )


def _refuse_simulated_only(plan: ParallelPlan) -> None:
    only = {
        "recomputed layers": bool(plan.recompute),
        "sharded layers": bool(plan.shardings) or any(len(worker.devices) > 1 for worker in plan.workers),
        "token slices": bool(plan.slices),
    }
    for what, present in only.items():
        if present:
            raise BadInput(f"the plan has {what}", "spec.mode", "simulated")


def _metrics(plan: ParallelPlan, reports: list[dict[str, Any]], error: float) -> dict[str, float]:
    steps = [max(times) for times in zip(*(report["step_times"] for report in reports), strict=True)]
    seconds = statistics.median(steps)
    return {
        "step_time": seconds,
        "samples_per_second": plan.batch / seconds,
        "peak_memory_per_device": max(report["peak_bytes"] for report in reports),
        "communication_bytes": max(sum(report["bytes_by_collective"].values()) for report in reports),
        "max_gradient_error": error,
        "devices": float(len(reports)),
    }


def single_process_gradients(job: Job) -> dict[str, Tensor]:
    """The gradients of the whole batch, computed here, on the CPU."""
    made = built(job.source, job.seed, "cpu")
    made.module(*made.batch).backward()
    return made.gradients()


def gradient_error(reference: dict[str, Tensor], ranks: list[dict[str, Tensor]]) -> float:
    """Largest absolute difference over all parameters and all ranks that hold their gradient.

    ``LabError`` when no rank holds the gradient of some parameter.
    """
    missing = sorted(set(reference).difference(*ranks))
    if missing:
        raise LabError(f"no rank computed the gradient of {missing[0]} (and {len(missing) - 1} more)")
    return max(
        float((gradient.double() - reference[name].double()).abs().max())
        for found in ranks
        for name, gradient in found.items()
    )
