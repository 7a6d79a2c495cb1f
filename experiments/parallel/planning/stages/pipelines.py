"""Pipelines without flushes: a window of updates over stages that are as equal as can be, one worker for
each.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.hardware import Hardware
from experiments.parallel.interface import (
    ParallelPlan,
    Slot,
    Training,
    replicated_pipelines,
    replicated_stages,
    whole_share,
)
from experiments.parallel.interface.open_counts import PipelineShapes
from experiments.workloads.layers import LayerGraph


def shapes_of(
    model: LayerGraph,
    cluster: Hardware,
    batch: int,
    stages: int | None = None,
    micro_batches: int | None = None,
) -> PipelineShapes:
    """Depths of at most a stage for every layer, with the micro-batches of an update of ``batch`` samples."""
    return PipelineShapes(cluster.device_count, len(model), batch, stages, micro_batches)


def window_plan(
    bounds: Sequence[tuple[int, int]],
    orders: Sequence[Sequence[Slot]],
    cluster: Hardware,
    batch: int,
    updates: int,
    training: Training,
) -> ParallelPlan:
    """Return a plan of ``updates`` of ``batch`` samples each.

    ``orders`` are those of one pipeline; devices left over replicate it.
    """
    assert training.weights is not None
    each = training.weights.every
    width = whole_share(cluster.device_count, len(bounds), "devices", "knobs.stages")
    whole_share(batch, width * each, "samples", "options.batch")
    return ParallelPlan(
        batch=batch * updates,
        micro_batches=width * each * updates,
        mesh=(("pipeline", len(bounds)), ("data", width)),
        stages=replicated_stages(bounds, width),
        workers=replicated_pipelines(orders, width, each * updates),
        steps=updates,
        training=training,
    )
