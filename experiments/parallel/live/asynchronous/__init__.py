"""Training by a plan's own rule in several processes: parameter servers, pipelines without flushes, adapting
workers.

A run trains a small problem (a data set of a few mini-batches, visited again and again) and compares its
losses with those of one process that takes the same mini-batches in turn, and the staleness that was
measured, not the one that was planned.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from experiments.core.errors import BadInput
from experiments.core.progress import Progress, part
from experiments.core.spec import Result, Series
from experiments.parallel.interface import ParallelPlan
from experiments.parallel.interface.parameter_servers import dedicated_servers, has_servers
from experiments.parallel.live.asynchronous.problem import TrainingJob, TrainingProblem
from experiments.parallel.live.asynchronous.sequential import Sequential, sequential
from experiments.parallel.live.asynchronous.servers import flatten_parameters
from experiments.parallel.live.launch import launch
from experiments.workloads.layers import LayerGraph
from experiments.workloads.model import ModelSource

__all__ = ["measure_training", "refuse_untrainable", "result_of", "trained_weights"]

RANK = "experiments.parallel.live.asynchronous.rank"


def measure_training(
    plan: ParallelPlan, model: LayerGraph, source: ModelSource, seed: int, progress: Progress
) -> Result:
    """Train by ``plan`` in processes of this host. ``BadInput`` for what is simulated only."""
    refuse_untrainable(plan)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="lab-training-") as folder:
        job = TrainingJob(plan, model.layer, source, seed, Path(folder))
        problem = TrainingProblem(job)
        if not has_servers(plan):
            problem.refuse_tied()
        job.save()
        launch(job, part(progress, 0.0, 0.8), module=RANK)
        result = result_of(job, problem)
    progress(1.0, "trained")
    return result


def refuse_untrainable(plan: ParallelPlan) -> None:
    servers = plan.synchronization.servers
    only = {
        "workers of several devices": any(len(worker.devices) > 1 for worker in plan.workers),
        "servers on devices that compute": len(dedicated_servers(plan)) < len(servers),
        "recomputed layers": bool(plan.recompute),
        "token slices": bool(plan.slices),
        "cut layers": bool(plan.shardings),
        "portions of a batch": has_servers(plan) and len({len(w.slots) for w in plan.workers}) > 1,
    }
    for what, present in only.items():
        if present:
            raise BadInput(f"the plan has {what}", "spec.mode", "simulated")


def result_of(job: TrainingJob, problem: TrainingProblem) -> Result:
    """From the ranks' reports; the single process trains here, as many mini-batches as they did."""
    reports = [job.report(rank) for rank in range(job.ranks)]
    losses = _losses(reports, problem.parts)
    alone = sequential(problem, len(losses))
    late = [updates for report in reports for updates in report["late"]]
    return Result(
        metrics=_metrics(problem, reports, losses, late, _distance(job, problem, alone)),
        series={
            "loss": _by_update(losses),
            "loss_one_process": _by_update(alone.losses),
            **_staleness(reports, late),
            **_curves(reports),
        },
        plan={**job.plan.to_json(), "ranks": [_summary(report) for report in reports]},
        notes={"backend": "gloo", "device": "cpu"},
    )


def _losses(reports: list[dict[str, Any]], parts: int) -> list[float]:
    """In the order in which they came, the mean of as many as make a mini-batch."""
    seen = [loss for _, _, loss in sorted(row for report in reports for row in report["losses"])]
    return [fmean(seen[begin : begin + parts]) for begin in range(0, len(seen) - parts + 1, parts)]


def _by_update(losses: list[float]) -> Series:
    return Series("nats", [float(number) for number in range(len(losses))], losses, "mini-batch")


def _metrics(
    problem: TrainingProblem,
    reports: list[dict[str, Any]],
    losses: list[float],
    late: list[int],
    distance: float,
) -> dict[str, float]:
    """``final_loss`` is the mean of the last visit to the data set."""
    seconds = max(r["ended"] for r in reports) - min(r["started"] for r in reports)
    rows = sum(len(report["losses"]) for report in reports)
    samples = rows * problem.plan.micro_batch_samples
    found = {
        "step_time": seconds * problem.parts / rows,
        "samples_per_second": samples / seconds,
        "initial_loss": losses[0],
        "final_loss": fmean(losses[-problem.training.dataset :]),
        "max_parameter_difference": distance,
        "devices": float(len(reports)),
        "weight_versions": float(max(report["versions"] for report in reports)),
    }
    if late:
        found |= {"staleness_mean": fmean(late), "staleness_max": float(max(late))}
    return found


def _staleness(reports: list[dict[str, Any]], late: list[int]) -> dict[str, Series]:
    """Of all gradients together, and the mean and most of each rank that applied some."""
    if not late:
        return {}
    updates = range(max(late) + 1)
    ranks = [rank for rank, report in enumerate(reports) if report["late"]]
    numbers = [float(rank) for rank in ranks]
    most = [float(max(reports[rank]["late"])) for rank in ranks]
    means = [fmean(reports[rank]["late"]) for rank in ranks]
    shares = [late.count(u) / len(late) for u in updates]
    return {
        "staleness": Series("fraction", [float(u) for u in updates], shares, "updates late"),
        "staleness_by_rank": Series("updates", numbers, most, "rank"),
        "staleness_mean_by_rank": Series("updates", numbers, means, "rank"),
        "weight_versions_by_rank": Series(
            "versions", numbers, [float(reports[rank]["versions"]) for rank in ranks], "rank"
        ),
    }


#: Units of the curves that ranks report.
UNITS = {
    "learning_rate": "1",
    "workers": "workers",
    "samples_per_second": "samples/s",
    "gradient_noise_scale": "samples",
    "gradient_variance": "1",
    "averages_weights": "1",
}


def _curves(reports: list[dict[str, Any]]) -> dict[str, Series]:
    """Of the first rank, which takes part all the time; iterations a second of those who train
    with others.
    """
    found = {
        name: Series(UNITS[name], [float(x) for x, _ in rows], [y for _, y in rows], "update")
        for name, rows in reports[0]["curves"].items()
    }
    workers = [r for r in reports if r["role"].startswith("worker") and r["ended"] > r["started"]]
    rates = [report["updates"] / (report["ended"] - report["started"]) for report in workers]
    if len(workers) > 1:
        numbers = [float(number) for number in range(len(workers))]
        found["updates_per_second_by_worker"] = Series("updates/s", numbers, rates, "worker")
    return found


def _summary(report: dict[str, Any]) -> dict[str, Any]:
    return {
        "role": report["role"],
        "updates": report["updates"],
        "versions": report["versions"],
        "seconds": report["ended"] - report["started"],
        "most_ahead": max(report["ahead"], default=0),
    }


def trained_weights(job: TrainingJob, problem: TrainingProblem) -> dict[str, Tensor]:
    """By parameter name; those of servers put together from their pieces."""
    found: dict[str, Tensor] = {}
    for rank in range(job.ranks):
        found = {**job.tensors("weights", rank), **found}
    if not has_servers(job.plan):
        return found
    module = problem.built.module
    flat = flatten_parameters(module)
    pieces = [found[f"piece {number}"] for number in range(len(job.plan.synchronization.servers))]
    flat.copy_(torch.cat(pieces))
    return {name: p.detach().clone() for name, p in module.named_parameters()}


def _distance(job: TrainingJob, problem: TrainingProblem, alone: Sequential) -> float:
    """The largest difference of any parameter from the single process's."""
    trained = trained_weights(job, problem)
    return max(float((trained[name] - value).abs().max()) for name, value in alone.weights.items())
