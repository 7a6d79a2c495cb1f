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
from experiments.workloads.layers import LayerGraph


def stage_count(asked: int | None, model: LayerGraph, cluster: Hardware) -> int:
    """As asked for; else all devices, or one for every layer."""
    return asked or min(cluster.device_count, len(model))


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
