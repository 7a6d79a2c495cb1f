"""Replicas that share every micro-batch: each takes as many whole samples of it as the others, the last what
is left.

A stage of such replicas is one worker: its devices run the same slots, a layer's work is divided by samples,
and gradients are summed once a step, in buckets overlapped with the backward passes that are left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from experiments.parallel.interface import PER_STEP, Collective, PlanningEstimate, Sharding
from experiments.workloads.step import Floats


def shared_ways(samples: int, devices: int) -> float:
    """Return how many times faster ``devices`` run ``samples`` than one of them.

    ``shared_ways(6, 4)`` is 3, two samples each.
    """
    return samples / math.ceil(samples / devices)


def by_samples(estimate: PlanningEstimate, layers: range, samples: int, devices: int) -> tuple[Sharding, ...]:
    """Return shardings of ``layers`` on ``devices`` that share micro-batches of ``samples``.

    Whole where there is one device.
    """
    if devices == 1:
        return ()
    ways = shared_ways(samples, devices)
    gradients = estimate.layer_parameters * estimate.states.gradient
    return tuple(
        Sharding(layer, "batch", ways, 1, ways, backward=_gradient_sum(float(gradients[layer])))
        for layer in layers
    )


def _gradient_sum(gradient: float) -> tuple[Collective, ...]:
    return (Collective("all_reduce", gradient, per=PER_STEP),) if gradient else ()


def accumulated_seconds(
    forward: Floats, backward: Floats, all_reduce: Sequence[float], micro_batches: int
) -> float:
    """Return the seconds of a step of data parallelism.

    Passes follow each other, gradients of a block are summed while earlier blocks of the last backward pass
    still run. Columns are seconds of each block for one micro-batch, first block first.
    """
    now = micro_batches * float(forward.sum()) + (micro_batches - 1) * float(backward.sum())
    summed = now
    for own, message in zip(reversed(backward.tolist()), reversed(all_reduce), strict=True):
        now += own
        summed = max(summed, now) + message if message else summed
    return max(now, summed)
