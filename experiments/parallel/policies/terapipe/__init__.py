"""TeraPipe: pipelines over the tokens of a sequence, in slices whose lengths a dynamic program chooses.

Source: Li et al., "TeraPipe: Token-Level Pipeline Parallelism for Training Large-Scale Language Models",
ICML'21, sections 3.2-3.4 (section 3.4 for the batch dimension). "K" is ``stages``, t(i, j) the time of a
slice of i tokens after j others on one stage, forward and backward with the message; a slicing takes sum(t) +
(K-1) max(t). For every possible maximum the sum is least by dynamic programming over tokens, then over the
samples that are sliced together.

The paper measures t; here it is the slowest stage's layer times, cut by ``interface.slices``, plus
``overhead``, which stands for launches and a device that few tokens do not fill: without it the finest
slicing were always best. Slices run as GPipe's micro-batches do, backward from right to left. Left open:
memory (every slice is kept, as in GPipe). Not reproduced: measuring t, and tensor parallelism inside a stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from experiments.core.budget import Budget
from experiments.core.knobs import knob, open_knob
from experiments.hardware import Hardware
from experiments.hardware.collectives import point_to_point
from experiments.parallel.interface import (
    BACKWARD,
    FORWARD,
    ParallelPlan,
    ParallelPolicy,
    PlanningEstimate,
    Slice,
    Slot,
    replicated_pipelines,
    replicated_stages,
    stage_bounds,
    whole_share,
)
from experiments.parallel.interface.open_counts import PipelineShapes
from experiments.parallel.interface.slices import attention_shares, sequence_length
from experiments.parallel.planning.settings import grid
from experiments.parallel.policies.terapipe.slicing import Latency, best_slicing, slicing_seconds
from experiments.workloads.layers import LayerGraph

#: Longest slices that differ by less are tried once: the paper's own figure, in seconds.
GAP = 1e-5


@dataclass(frozen=True)
class TeraPipe(ParallelPolicy):
    """Token slices of lengths that keep a pipeline's stages busy, by dynamic programming."""

    name: ClassVar[str] = "terapipe"
    mechanism: ClassVar[str] = "pipeline"

    stages: int | None = open_knob("devices of a pipeline", low=1, high=4096)
    granularity: int = knob(64, "slice lengths are multiples of this", low=1, high=1 << 20, unit="tokens")
    most_samples: int = knob(8, "samples that are sliced together, at most", low=1, high=256)
    overhead: float = knob(
        1e-4, "time of a slot besides its layers: launches, a device not full", low=0.0, high=1.0, unit="s"
    )
    evaluations: int = knob(
        10_000_000_000, "sums of times that are compared before the best so far is taken", low=1, high=10**15
    )
    recompute: bool | None = open_knob(
        "keep a stage's input only and recompute its activations before backward"
    )

    def settings(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> Iterator[Sequence[Self]]:
        """Every depth, then with recomputation."""
        depths = self._shapes(model, cluster, batch).depths()
        yield from grid(self, stages=depths, recompute=(False,))
        yield from grid(self, stages=depths, recompute=(True,))

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        stages = self._shapes(model, cluster, batch).depths()[-1]
        bounds = stage_bounds(estimate, stages)
        pipelines = whole_share(cluster.device_count, stages, "devices", "knobs.stages")
        samples = whole_share(batch, pipelines, "samples", "knobs.stages")
        steps = whole_share(sequence_length(model), self.granularity, "tokens", "knobs.granularity")
        latency = self._latency(bounds, estimate, min(samples, self.most_samples), steps)
        budget = Budget(self.evaluations, estimate.progress, "sums")
        groups = best_slicing(latency, samples, stages, GAP, budget)
        slices = _slices(groups, self.granularity)
        return ParallelPlan(
            batch=batch,
            micro_batches=pipelines * len(slices),
            mesh=(("pipeline", stages), ("data", pipelines)),
            stages=replicated_stages(bounds, pipelines),
            workers=replicated_pipelines(
                [_order(stage, len(slices)) for stage in range(stages)], pipelines, len(slices)
            ),
            recompute=tuple(range(len(model))) if self.recompute else (),
            synchronization=self.sync(),
            slices=slices * pipelines,
            slot_overhead=self.overhead,
            notes={
                "predicted_step_time": slicing_seconds(latency, groups, stages),
                **budget.caveat("evaluations"),
            },
        )

    def _shapes(self, model: LayerGraph, cluster: Hardware, batch: int) -> PipelineShapes:
        return PipelineShapes(cluster.device_count, len(model), batch, self.stages)

    def _latency(
        self, bounds: Sequence[tuple[int, int]], estimate: PlanningEstimate, samples: int, steps: int
    ) -> Latency:
        """t for 1 to ``samples`` samples; shape (samples, tokens, context), the latter two in steps."""
        forward = estimate.model.forward_seconds / estimate.model.batch
        seconds = estimate.layer_seconds + (forward if self.recompute else 0.0)
        attention = attention_shares(estimate)
        tokens, context = np.arange(steps + 1.0)[:, None] / steps, np.arange(steps + 1.0)[None, :] / steps
        pairs = (context + tokens) ** 2 - context**2
        slowest = np.zeros((steps + 1, steps + 1))
        for begin, end in bounds:
            own, square = seconds[begin:end], (seconds * attention)[begin:end]
            slowest = np.maximum(slowest, (own.sum() - square.sum()) * tokens + square.sum() * pairs)
        counts = np.arange(1.0, samples + 1)[:, None, None]
        found: Latency = counts * (slowest + _message_slope(bounds, estimate) * tokens)
        return found + 2 * (self.overhead + _message_latency(bounds, estimate))


def _message_latency(bounds: Sequence[tuple[int, int]], estimate: PlanningEstimate) -> float:
    return _message(bounds, estimate, 0.0)


def _message_slope(bounds: Sequence[tuple[int, int]], estimate: PlanningEstimate) -> float:
    """Seconds there and back for the largest output of a stage, one sample of whole length,
    without latency.
    """
    outputs = [float(estimate.model.output_bytes[end - 1]) for _, end in bounds[:-1]]
    size = max(outputs, default=0.0) / estimate.model.batch
    return 2 * (_message(bounds, estimate, size) - _message(bounds, estimate, 0.0))


def _message(bounds: Sequence[tuple[int, int]], estimate: PlanningEstimate, size: float) -> float:
    if len(bounds) == 1:
        return 0.0
    nodes = estimate.cluster.nodes
    return point_to_point(estimate.cluster.network if len(nodes) > 1 else nodes[0].link, size)


def _slices(groups: Sequence[tuple[int, Sequence[int]]], granularity: int) -> tuple[Slice, ...]:
    found = []
    for samples, lengths in groups:
        context = 0
        for length in lengths:
            found.append(Slice(samples, context * granularity, length * granularity))
            context += length
    return tuple(found)


def _order(stage: int, slices: int) -> tuple[Slot, ...]:
    """Slices forward from left to right, backward from right to left."""
    forwards = [Slot(FORWARD, index, stage) for index in range(slices)]
    return (*forwards, *(Slot(BACKWARD, index, stage) for index in reversed(range(slices))))
