"""What a prediction of a measured run stands on: layer times and links as they are on this host, under the
run's load.

Layers are timed one by one at the size of a micro-batch (``profiling``) with the threads of a rank; that all
ranks compute at once is measured by whole passes that they time together, in turn with the steps
(``timings``).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from experiments.core.errors import BadInput
from experiments.core.progress import Progress
from experiments.hardware.measured_collectives import Fit, Measurement, fit
from experiments.parallel.interface import ParallelPlan
from experiments.profiling.timing import profile_cached
from experiments.workloads.aggregate import layer_graph
from experiments.workloads.layers import LayerGraph
from experiments.workloads.model import ModelSource


def threads(ranks: int) -> int:
    """Threads of each of ``ranks`` processes on this host."""
    return max(1, (os.cpu_count() or 1) // ranks)


@dataclass(frozen=True)
class Links:
    """Links that explain the times of a run's messages.

    ``link`` explains all-reduces, or messages where a plan has nothing else; ``collectives`` the other kinds.
    """

    link: Fit
    collectives: tuple[tuple[str, Fit], ...] = ()


def links_of(plan: ParallelPlan, rows: Sequence[dict[str, Any]], ranks: int) -> Links | None:
    """What explains the times of what ``plan`` sends; nothing where a busy host made them meaningless."""
    collectives = len(plan.devices) > len(plan.workers) or any(
        len(stage.workers) > 1 for stage in plan.stages
    )
    try:
        if collectives:
            kinds = [(kind, fit(_rows(rows, kind), ranks)) for kind in ("all_gather", "reduce_scatter")]
            return Links(fit(_rows(rows, "all_reduce"), ranks), tuple(kinds))
        # A message of n bytes costs alpha + n beta, as an all-gather of 2n bytes between two.
        sent = [Measurement("all_gather", 2 * row.size, row.seconds) for row in _rows(rows, "send")]
        return Links(fit(sent, 2))
    except BadInput:  # times that do not grow with sizes
        return None


def _rows(rows: Sequence[dict[str, Any]], kind: str) -> list[Measurement]:
    return [Measurement(kind, row["size"], row["seconds"]) for row in rows if row["kind"] == kind]


def timed_layers(
    source: ModelSource, samples: int, ranks: int, loaded: float, progress: Progress
) -> LayerGraph:
    """The layers of a micro-batch with their times on this host, which add up to ``loaded`` seconds."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads(ranks))
    try:
        step = profile_cached(
            replace(source, options=replace(source.options, batch=samples)), "cpu", progress
        )
    finally:
        torch.set_num_threads(before)
    graph = layer_graph(step)
    scale = loaded / float((graph.forward_seconds + graph.backward_seconds).sum())
    return replace(
        graph, forward_seconds=graph.forward_seconds * scale, backward_seconds=graph.backward_seconds * scale
    )
