"""What a prediction of a measured run stands on: layer times and links as they are on this host, under the run's load.

Layers are timed one by one at the size of a micro-batch (``profiling``) with the threads of a rank; that all ranks compute
at once is told by whole passes that they time together before the first step.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from experiments.core.progress import Progress
from experiments.hardware.measured_collectives import Fit, Measurement, fit, slower
from experiments.parallel.interface import ParallelPlan
from experiments.parallel.live.model import Built
from experiments.profiling.timing import profiled
from experiments.workloads.aggregate import layer_graph
from experiments.workloads.layers import LayerGraph
from experiments.workloads.model import ModelSource

#: Bytes of the collectives and messages that are timed, and how often each.
SIZES, TIMES = (2**10, 2**16, 2**20, 2**23), 7
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")


def threads(ranks: int) -> int:
    """Threads of each of ``ranks`` processes on this host."""
    return max(1, (os.cpu_count() or 1) // ranks)


def loaded_pass(made: Built, samples: int) -> float:
    """Seconds of a forward and backward pass of a micro-batch while all ranks do the same. Leaves no gradients."""
    found = []
    for _ in range(TIMES):
        dist.barrier()
        start = time.perf_counter()
        made.module(*made.micro_batch(0, samples)).backward()
        found.append(time.perf_counter() - start)
        made.module.zero_grad()
    return statistics.median(found)


def timed_messages(rank: int, device: str) -> list[dict[str, Any]]:
    """Seconds of collectives among all ranks, and of messages between the first two (which ``rank`` may only watch).

    Weights that are gathered come from shards and go to parameters of their own, and gradients are brought together: a
    copy on either side, as every runner makes them.
    """
    rows = []
    for size in SIZES:
        tensor = torch.zeros(size // 4, device=device)
        own = tensor.chunk(dist.get_world_size())[0].clone()
        rows.append(_timed("all_gather", tensor, lambda: _gathered(tensor, own), 1))  # noqa: B023
        rows.append(_timed("reduce_scatter", tensor, lambda: _scattered(tensor, own), 1))  # noqa: B023
        rows.append(_timed("all_reduce", tensor, lambda: dist.all_reduce(tensor), 1))  # noqa: B023
        rows.append(_timed("send", tensor, lambda: _there_and_back(tensor, rank), 2))  # noqa: B023
    return rows


def _timed(kind: str, tensor: torch.Tensor, run: Callable[[], object], trips: int) -> dict[str, Any]:
    found = []
    for _ in range(TIMES):
        dist.barrier()
        start = time.perf_counter()
        run()
        if tensor.is_cuda:
            torch.cuda.synchronize()
        found.append((time.perf_counter() - start) / trips)
    return {"kind": kind, "size": tensor.nbytes, "seconds": statistics.median(found)}


def _gathered(whole: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    dist.all_gather_into_tensor(whole, own.clone())
    return whole.clone()


def _scattered(whole: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    dist.reduce_scatter_tensor(own, whole.clone())
    return own.clone()


def _there_and_back(tensor: torch.Tensor, rank: int) -> None:
    if rank == 0:
        dist.send(tensor, 1)
        dist.recv(tensor, 1)
    elif rank == 1:
        dist.recv(tensor, 0)
        dist.send(tensor, 0)


@dataclass(frozen=True)
class Links:
    """``link`` explains all-reduces, or messages where a plan has nothing else; ``slower`` the collectives beside them."""

    link: Fit
    slower: tuple[tuple[str, float], ...] = ()


def links_of(plan: ParallelPlan, rows: list[dict[str, Any]], ranks: int) -> Links:
    """What explains the times of what ``plan`` sends."""
    collectives = len(plan.devices) > len(plan.workers) or any(
        len(stage.workers) > 1 for stage in plan.stages
    )
    if collectives:
        found = {kind: [_row(row) for row in rows if row["kind"] == kind] for kind in COLLECTIVES}
        link = fit(found[COLLECTIVES[0]], ranks)
        others = [row for kind in COLLECTIVES[1:] for row in found[kind]]
        return Links(link, slower(others, link, ranks, least=SIZES[1]))
    # A message of n bytes costs alpha + n beta, as an all-gather of 2n bytes between two.
    sent = [row for row in rows if row["kind"] == "send"]
    return Links(fit([Measurement("all_gather", 2 * row["size"], row["seconds"]) for row in sent], 2))


def _row(row: dict[str, Any]) -> Measurement:
    return Measurement(row["kind"], row["size"], row["seconds"])


def timed_layers(
    source: ModelSource, samples: int, ranks: int, loaded: float, progress: Progress
) -> LayerGraph:
    """The layers of a micro-batch with their times on this host, which add up to ``loaded`` seconds."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads(ranks))
    try:
        step = profiled(replace(source, options=replace(source.options, batch=samples)), "cpu", progress)
    finally:
        torch.set_num_threads(before)
    graph = layer_graph(step)
    scale = loaded / float((graph.forward_seconds + graph.backward_seconds).sum())
    return replace(
        graph, forward_seconds=graph.forward_seconds * scale, backward_seconds=graph.backward_seconds * scale
    )
