"""Activations saved for the backward pass, and the layers of a step: the nouns of layer-based policies."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from experiments.workloads.step import PHASES, Step

CONV, POOL, NORM, ACT, FC, SOFTMAX, OTHER = "CONV", "POOL", "NORM", "ACT", "FC", "SOFTMAX", "OTHER"
#: Parts of op names by layer type, looked for in this order, lower case, in ATen names (``aten.relu``) and in
#: those of kernel traces (``Conv2d_Forward``). The same part is found in a layer's backward ops.
LAYER_TYPES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (CONV, ("conv",)),
    (POOL, ("pool",)),
    (NORM, ("batch_norm", "batchnorm", "layer_norm", "layernorm", "group_norm")),
    (SOFTMAX, ("softmax", "nll_loss", "cross_entropy", "mse_loss", "makeloss")),
    (ACT, ("relu", "gelu", "silu", "tanh", "sigmoid", "threshold", "erf")),
    (FC, ("linear", "addmm", "aten.mm")),
)


@lru_cache(10_000)
def layer_type(target: str) -> str:
    """Return the type of layer that an op belongs to, from its name."""
    name = target.lower()
    return next((kind for kind, parts in LAYER_TYPES if any(part in name for part in parts)), OTHER)


@dataclass(frozen=True)
class Saved:
    """A tensor produced in the forward pass and read after it.

    It has its last forward use and its first use after that.
    """

    tensor: int
    bytes: int
    produced: int
    last_forward: int
    first_backward: int


def last_forward_op(step: Step) -> int:
    """Return the index of the last forward op (the loss); -1 when there is none."""
    found = np.nonzero(step.ops.phase == PHASES.index("forward"))[0]
    return int(found[-1]) if len(found) else -1


def saved_activations(step: Step) -> list[Saved]:
    """Return the saved activations in the order of their last forward use (ties: tensor id)."""
    loss = last_forward_op(step)
    spans = ~step.persistent & (step.first_use <= loss) & (step.last_use > loss)
    found = []
    for tensor in np.nonzero(spans)[0].tolist():
        uses = step.uses[tensor].tolist()
        later = bisect_left(uses, loss + 1)
        size = int(step.tensors.bytes[tensor])
        found.append(Saved(tensor, size, uses[0], uses[later - 1], uses[later]))
    return sorted(found, key=lambda saved: (saved.last_forward, saved.tensor))


@dataclass(frozen=True)
class Layer:
    """A forward op that is not a view, with its type and its backward ops.

    The latter are ``[backward_start, backward_end)``, empty where there are none.
    """

    op: int
    type: str
    backward_start: int
    backward_end: int


def layers(step: Step) -> list[Layer]:
    """Return the layers in forward order, each with its stretch of the backward pass.

    Backward ops visit layers in descending order. A backward op belongs to the latest layer, not after the
    one before it, that used one of the tensors the op reads; among several those of the op's own type come
    first. An op with none (sums of gradients) stays with the layer before it.
    """
    loss = last_forward_op(step)
    view = step.ops.view
    forward = [op for op in range(loss + 1) if not view[op]]
    position = {op: index for index, op in enumerate(forward)}
    types = [layer_type(step.ops.target[op]) for op in range(len(step.ops))]
    stretch: dict[int, tuple[int, int]] = {}
    current = len(forward) - 1
    persistent = step.persistent
    for op in range(loss + 1, len(step.ops)):
        if step.phase_of(op) != "backward" or view[op]:
            continue
        users = {
            position[use]
            for tensor in step.inputs[op].tolist()
            if not persistent[tensor]
            for use in step.uses[tensor].tolist()
            if use in position and position[use] <= current
        }
        same = [index for index in users if types[forward[index]] == types[op]]
        current = max(same or users or {current})
        start, _ = stretch.get(current, (op, op))
        stretch[current] = (start, op + 1)
    end = len(step.ops)
    return [Layer(op, types[op], *stretch.get(index, (end, end))) for index, op in enumerate(forward)]
