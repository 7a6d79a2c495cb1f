"""Chimera's model of a step, by which it chooses width, depth and micro-batch.

Source: Li and Hoefler, SC'21, section 3.4: T = C_f (F + c) + C_b (B + c) + max_i (exposed all-reduce of
worker i). C_f and C_b count the forward and backward passes on the longest path of the schedule (D and 2D - 2
for N = D), so the first two terms are the span of a replay in which every pass takes its time and a message.
Worker i all-reduces the gradients of its two stages as soon as all their replicas are done; what the rest of
the schedule does not hide is exposed. An all-reduce of g bytes among r = 2W replicas takes 2 log2(r) alpha +
2 (r - 1) / r g beta (Rabenseifner's algorithm).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.hardware import Hardware, Link
from experiments.hardware.collectives import Traffic, point_to_point, seconds
from experiments.parallel.interface import FORWARD, PlanningEstimate, Slot, stage_bounds
from experiments.parallel.policies.chimera.bidirectional import PassGroup, device_order


@dataclass(frozen=True)
class PassTimes:
    """Seconds of a stage's passes, each with its message.

    ``forward`` has an entry for a pass of one micro-batch, and one for a pass of two.
    """

    forward: tuple[float, float]
    backward: float


@dataclass(frozen=True)
class ReplayedPasses:
    """The span of a schedule, and when the last gradient of each stage is there, in seconds."""

    span: float
    complete: tuple[float, ...]


def modeled_step(
    estimate: PlanningEstimate, depth: int, width: int, samples: int, groups: Sequence[PassGroup], again: bool
) -> float:
    """Return the model's T for ``width`` pipelines of ``depth`` stages, in seconds.

    ``samples`` a micro-batch; ``again``: activations are recomputed.
    """
    bounds, link = stage_bounds(estimate, depth), _slowest_link(estimate.cluster)
    replayed = replay_passes(depth, groups, _pass_times(estimate, bounds, samples, again, link))
    sizes = [
        float(estimate.layer_parameters[begin:end].sum()) * estimate.states.gradient for begin, end in bounds
    ]
    reduced = [all_reduce_seconds(link, 2 * width, size) for size in sizes]
    return replayed.span + exposed_seconds(replayed, reduced)


def replay_passes(depth: int, groups: Sequence[PassGroup], times: PassTimes) -> ReplayedPasses:
    """Replay the schedule of ``depth`` devices with equally long passes of each kind."""
    group_of = {member: group for group in groups for member in group}
    orders = [
        [slot for slot in device_order(device, depth, groups) if _begins_pass(slot, group_of)]
        for device in range(depth)
    ]
    ends: dict[Slot, float] = {}
    free, place = [0.0] * depth, [0] * depth
    while any(place[device] < len(order) for device, order in enumerate(orders)):
        for device, order in enumerate(orders):
            for slot in order[place[device] :]:
                needed = _needed(slot, depth, group_of)
                if not all(before in ends for before in needed):
                    break
                start = max([free[device], *(ends[before] for before in needed)])
                taken = len(group_of[slot.micro_batch]) - 1
                length = times.forward[taken] if slot.kind == FORWARD else times.backward
                ends[slot] = free[device] = start + length
                place[device] += 1
    complete = (max(end for slot, end in ends.items() if slot.stage == stage) for stage in range(depth))
    return ReplayedPasses(max(free), tuple(complete))


def _begins_pass(slot: Slot, group_of: dict[int, PassGroup]) -> bool:
    """Whether it is a backward pass, or stands for all micro-batches of a forward pass."""
    return slot.kind != FORWARD or slot.micro_batch == group_of[slot.micro_batch][0]


def _needed(slot: Slot, depth: int, group_of: dict[int, PassGroup]) -> list[Slot]:
    """The passes on whose results one waits."""
    kind, micro_batch, stage = slot
    if kind == FORWARD:
        return [slot._replace(stage=stage - 1)] if stage else []
    own = Slot(FORWARD, group_of[micro_batch][0], stage)
    return [own, slot._replace(stage=stage + 1)] if stage < depth - 1 else [own]


def all_reduce_seconds(link: Link, ranks: int, size: float) -> float:
    """2 log2(r) alpha + 2 (r - 1) / r g beta."""
    return seconds(link, Traffic(2 * math.ceil(math.log2(ranks)), 2 * (ranks - 1) / ranks * size, True))


def exposed_seconds(replayed: ReplayedPasses, reduced: Sequence[float]) -> float:
    """Return how long the slowest worker's all-reduces last beyond the passes.

    Device d has the stages d and D - 1 - d, and one all-reduce at a time.
    """
    ends = []
    for device in range(len(reduced)):
        own = {device, len(reduced) - 1 - device}
        end = 0.0
        for complete, stage in sorted((replayed.complete[stage], stage) for stage in own):
            end = max(end, complete) + reduced[stage]
        ends.append(end)
    return max(0.0, max(ends) - replayed.span)


def _pass_times(
    estimate: PlanningEstimate, bounds: Sequence[tuple[int, int]], samples: int, again: bool, link: Link
) -> PassTimes:
    """Of the slowest stage; every pass with a message of the largest activations between two stages."""
    model = estimate.model
    crossing = max((float(model.output_bytes[end - 1]) / model.batch for _, end in bounds[:-1]), default=0.0)
    message = [point_to_point(link, crossing * samples * count) if crossing else 0.0 for count in (1, 2)]
    forward = [_slowest(estimate, bounds, samples * count)[0] for count in (1, 2)]
    backward = _slowest(estimate, bounds, samples)[1] + (forward[0] if again else 0.0)
    return PassTimes((forward[0] + message[0], forward[1] + message[1]), backward + message[0])


def _slowest(
    estimate: PlanningEstimate, bounds: Sequence[tuple[int, int]], samples: int
) -> tuple[float, float]:
    """Forward and backward seconds of the slowest stage."""
    passes = [estimate.pass_seconds(layer, samples) for layer in range(len(estimate.model))]
    stages = [passes[begin:end] for begin, end in bounds]
    forward = max(sum(layer.forward for layer in stage) for stage in stages)
    return forward, max(sum(layer.backward + layer.weight for layer in stage) for stage in stages)


def _slowest_link(cluster: Hardware) -> Link:
    return cluster.network if cluster.node_count > 1 else cluster.node.link
