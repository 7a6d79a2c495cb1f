"""PipeDream-2BW's planner: how wide, how deep, which micro-batch, recomputing or not, by closed forms.

Source: Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training", ICML'21, section 3.3 and appendix
A. With T_i the passes of stage i over a micro-batch, C_i what it receives and sends, A_i the all-reduce of
its gradients over w pipelines and m micro-batches an update, a micro-batch takes t = max_i max(T_i + C_i, A_i
/ m); b w / t samples a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from experiments.core.errors import BadInput, Infeasible
from experiments.hardware import Hardware, Link
from experiments.hardware.collectives import point_to_point, ring_all_reduce_traffic, seconds
from experiments.parallel.interface import PlanningEstimate, stage_bounds
from experiments.workloads.step import Floats


@dataclass(frozen=True)
class PipelineShape:
    """``width`` pipelines of ``depth`` stages, and their micro-batches.

    ``samples`` a micro-batch, ``every`` of them an update of a pipeline.
    """

    width: int
    depth: int
    samples: int
    every: int
    recompute: bool


@dataclass(frozen=True)
class ShapeCandidate:
    """A shape with the seconds of a micro-batch, samples a second, and bytes on the fullest device."""

    shape: PipelineShape
    micro_batch_time: float
    samples_per_second: float
    bytes: float


def shapes(devices: int, layers: int, batch: int, recompute: bool | None) -> Iterator[PipelineShape]:
    """Return all shapes with ``width * depth = devices`` and whole micro-batches.

    At least ``depth`` of them make an update (two versions).
    """
    for depth in (d for d in range(1, min(devices, layers) + 1) if devices % d == 0):
        share, rest = divmod(batch, devices // depth)
        for samples in (
            b for b in range(1, share + 1) if not rest and share % b == 0 and share // b >= depth
        ):
            for again in (False, True) if recompute is None else (recompute,):
                yield PipelineShape(devices // depth, depth, samples, share // samples, again)


def best_shape(
    estimate: PlanningEstimate, batch: int, recompute: bool | None = None, depth: int | None = None
) -> tuple[ShapeCandidate, int, int]:
    """Return the fastest shape that fits, how many were looked at, and how many fit.

    Of equals one that recomputes nothing, then the one that needs least.
    """
    every = shapes(estimate.cluster.device_count, len(estimate.model), batch, recompute)
    found = [shape for shape in every if depth in (None, shape.depth)]
    if not found:
        raise BadInput(
            f"{batch} samples make no pipeline", "options.batch", "samples for every width and depth"
        )
    costs: dict[int, _Costs] = {}
    candidates = []
    for shape in found:
        costs.setdefault(shape.depth, _Costs(estimate, shape.depth))
        candidates.append(costs[shape.depth].candidate(shape))
    memory = estimate.cluster.device.memory_bytes
    fitting = [candidate for candidate in candidates if candidate.bytes <= memory]
    if not fitting:
        least = min(candidate.bytes for candidate in candidates)
        raise Infeasible(
            f"{least:.0f} bytes are least on a device of {memory}", "every shape", least - memory
        )
    best = min(
        fitting, key=lambda c: (-round(c.samples_per_second, 9), c.shape.recompute, c.bytes, c.shape.depth)
    )
    return best, len(candidates), len(fitting)


class _Costs:
    """Figures of ``depth`` stages for one sample; columns have shape (stages,)."""

    def __init__(self, estimate: PlanningEstimate, depth: int) -> None:
        model, self.estimate, self.depth = estimate.model, estimate, depth
        bounds = stage_bounds(estimate, depth)
        self.forward = _sums(model.forward_seconds / model.batch, bounds)
        self.backward = _sums(model.backward_seconds / model.batch, bounds)
        self.stash = _sums(model.stash_bytes / model.batch, bounds)
        self.parameters = _sums(estimate.layer_parameters, bounds)
        leaving = [float(model.output_bytes[end - 1]) / model.batch for _, end in bounds[:-1]]
        self.received = np.array([0.0, *leaving])
        self.sent = np.array([*leaving, 0.0])

    def candidate(self, shape: PipelineShape) -> ShapeCandidate:
        passes = self.forward * (2 if shape.recompute else 1) + self.backward
        transfers = np.array([self._transfers(shape, stage) for stage in range(self.depth)])
        exchange = np.array([self._all_reduce(shape, float(p)) for p in self.parameters])
        slowest = float(np.maximum(passes * shape.samples + transfers, exchange / shape.every).max())
        return ShapeCandidate(
            shape, slowest, shape.samples * shape.width / slowest, float(self._bytes(shape).max())
        )

    def _transfers(self, shape: PipelineShape, stage: int) -> float:
        """Activations in and out forward, gradients out and in backward."""
        total = 0.0
        for neighbor, size in ((stage - 1, self.received[stage]), (stage + 1, self.sent[stage])):
            if size:
                link = link_among(self.estimate.cluster, stage * shape.width, neighbor * shape.width)
                total += 2 * point_to_point(link, float(size) * shape.samples)
        return total

    def _all_reduce(self, shape: PipelineShape, parameters: float) -> float:
        if shape.width == 1:
            return 0.0
        link = link_among(self.estimate.cluster, 0, shape.width - 1)
        size = parameters * self.estimate.states.gradient
        return seconds(link, ring_all_reduce_traffic(shape.width, size))

    def _bytes(self, shape: PipelineShape) -> Floats:
        """Two versions of the weights, gradients, optimizer state, and the micro-batches in flight."""
        states = self.estimate.states
        in_flight = np.arange(self.depth, 0, -1.0)
        kept = in_flight * (self.received if shape.recompute else self.stash)
        kept += self.stash * shape.recompute
        found: Floats = self.parameters * (states.total + states.weight) + kept * shape.samples
        return found


def _sums(column: Floats, bounds: list[tuple[int, int]]) -> Floats:
    return np.array([float(column[begin:end].sum()) for begin, end in bounds])


def link_among(cluster: Hardware, first: int, last: int) -> Link:
    """Return the slowest link between two devices and those in between.

    Numbered node by node.
    """
    node_of = [number for number, node in enumerate(cluster.nodes) for _ in range(node.device_count)]
    if node_of[first] != node_of[last]:
        return cluster.network
    return cluster.nodes[node_of[first]].link
