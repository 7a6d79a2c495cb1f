"""GTBM / Dymem (HPDC 2020): tensors in three classes, one pool with two ends, prefetch two convolutions
ahead.

Single-use tensors have one reader; temporary ones live within one layer (the ops of a forward or backward
stretch of a layer, see ``activations.layers``); all others are reused. Temporaries take space from the top of
the pool, the others from the bottom, each first fit, so that what comes and goes does not cut up what stays.
A reused tensor that the backward pass needs leaves after its last forward use; its way back begins with the
second convolution before its first backward use, never earlier. Left open by the paper's notes: at exactly
that op; where a network has no convolutions, the fifth of the backward ops that takes longest stands for
them. Live runs use torch's allocator.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from experiments.core.knobs import knob
from experiments.memory.interface import (
    CountedBytes,
    DeviceView,
    MemoryMove,
    MemoryPlan,
    MemoryPolicy,
    MemoryPool,
    Offload,
    Prefetch,
)
from experiments.memory.interface.activations import CONV, last_forward_op, layer_type, saved_activations
from experiments.workloads.step import Step

#: Share of the backward ops that counts as heavy where there are no convolutions.
HEAVY = 0.2


def heavy_ops(step: Step) -> list[int]:
    """The backward convolutions in order; without any, the slowest fifth of the backward ops."""
    backward = [
        op for op in range(last_forward_op(step) + 1, len(step.ops)) if step.phase_of(op) == "backward"
    ]
    convolutions = [op for op in backward if layer_type(step.ops.target[op]) == CONV]
    if convolutions or not backward:
        return convolutions
    count = max(1, round(HEAVY * len(backward)))
    slowest = sorted(backward, key=lambda op: (-float(step.ops.seconds[op]), op))[:count]
    return sorted(slowest)


def start_of_fetch(consumer: int, heavy: list[int], ahead: int, floor: int) -> int:
    """Return the op at which the copy back begins.

    The ``ahead``-th heavy op before ``consumer``, at least ``floor``.
    """
    position = bisect_left(heavy, consumer) - ahead
    return max(floor, heavy[position]) if position >= 0 else floor


def temporaries(step: Step) -> tuple[int, ...]:
    """Return tensors that die in the module's pass that made them.

    Same phase and same module from first to last use.
    """
    found = []
    for tensor in np.nonzero(~step.persistent)[0].tolist():
        first, last = int(step.first_use[tensor]), int(step.last_use[tensor])
        if last < 0:
            continue
        same_layer = step.ops.module[first] == step.ops.module[last] and last - first <= 2
        if step.ops.phase[first] == step.ops.phase[last] and (first == last or same_layer):
            found.append(tensor)
    return tuple(found)


@dataclass(frozen=True)
class Gtbm(MemoryPolicy):
    """Reused tensors leave after their forward pass and return two convolutions ahead.

    Temporaries have the pool's top.
    """

    name: ClassVar[str] = "gtbm"
    mechanism: ClassVar[str] = "offload"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")

    ahead: int = knob(
        2, "convolutions before its first backward use that a tensor's way back begins", low=0, high=64
    )
    pool: bool = knob(True, "addresses from one pool with two ends; false: bytes are only counted")

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        if device.estimate(MemoryPlan()).fits:
            return MemoryPlan(notes={"offloads": 0})
        space = MemoryPool("two_ended", high=temporaries(step)) if self.pool else CountedBytes()
        heavy, floor = heavy_ops(step), last_forward_op(step) + 1
        moves: list[MemoryMove] = []
        for saved in saved_activations(step):
            fetch = start_of_fetch(saved.first_backward, heavy, self.ahead, floor)
            if (
                len(step.uses[saved.tensor]) > 1
                and saved.bytes
                and saved.last_forward + 1 < saved.first_backward
            ):
                moves.append(Offload(saved.last_forward + 1, saved.tensor, saved.last_forward))
                moves.append(Prefetch(fetch, saved.tensor))
        return MemoryPlan(tuple(moves), space=space, notes={"offloads": len(moves) // 2})
