"""Which saved activations are dropped and recomputed: the cheapest a byte first, layer by layer.

Borders are every so many places of the forward pass where one activation alone leads on; what lies between
two borders is a layer here. A layer that recomputes does so once, right before its backward pass, from its
border and from what it keeps or has sent to the host. Activations are ranked by their bytes for each second
of the ops that make them from the others, so that the first part of the ranking is what selective
recomputation drops (norms, activation functions, casts) and all of it is whole layers. The last layer comes
last: its backward pass follows at once.
"""

from __future__ import annotations

import functools
import itertools
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from experiments.memory.interface import MemoryMove, Recompute
from experiments.memory.interface.activations import Saved, saved_activations
from experiments.memory.planning.rematerialize import Demand, Rematerializer
from experiments.memory.planning.segments import Forward, forward_of
from experiments.workloads.step import PHASES, Step


@dataclass(frozen=True)
class Droppable:
    """A saved activation of layer ``layer`` and the seconds of the ops that make it from the others."""

    saved: Saved
    layer: int
    seconds: float

    @property
    def price(self) -> float:
        """Seconds a byte."""
        return self.seconds / self.saved.bytes


@dataclass(frozen=True)
class BatchPass:
    """The forward and backward pass of one micro-batch: ops ``[begin, end)`` of the step, as a step."""

    begin: int
    step: Step
    _rankings: dict[int, list[Droppable]] = field(default_factory=dict)

    @functools.cached_property
    def rematerializer(self) -> Rematerializer:
        return Rematerializer(self.step)

    @functools.cached_property
    def forward(self) -> Forward:
        return forward_of(self.step, self.rematerializer.lineage)

    @functools.cached_property
    def activations(self) -> list[Saved]:
        return saved_activations(self.step)

    def borders(self, stride: int) -> tuple[list[int], frozenset[int]]:
        """The last ops of the layers, and the tensors that are kept for them."""
        chosen = self.forward.candidates[stride - 1 :: stride]
        tensors = {tensor for candidate in chosen for tensor in candidate.border}
        return [candidate.op for candidate in chosen], frozenset(tensors) | self.forward.through

    def ranking(self, stride: int) -> list[Droppable]:
        """What can be dropped, the most bytes for a second first, the last layer after all others."""
        if stride not in self._rankings:
            ends, held = self.borders(stride)
            found = [*self._droppables(ends, held)]
            found.sort(key=lambda one: (one.layer == len(ends) > 0, one.price, one.saved.tensor))
            self._rankings[stride] = found
        return self._rankings[stride]

    def _droppables(self, ends: Sequence[int], held: frozenset[int]) -> Iterator[Droppable]:
        """Each saved activation that can be made from the others and the borders ``held``."""
        there = held.union(entry.tensor for entry in self.activations)
        for entry in self.activations:
            if entry.tensor in held or not entry.bytes:
                continue
            present = functools.partial(_is_other, there, entry.tensor)
            chain = self.rematerializer.chain([entry.tensor], present, entry.first_backward)
            if not chain.stuck:
                seconds = float(self.step.ops.seconds[list(chain.ops)].sum())
                yield Droppable(entry, bisect_left(ends, entry.produced), seconds)

    def recompute(self, stride: int, count: int, kept: Collection[int] = ()) -> list[MemoryMove]:
        """Drops and reruns of the first ``count`` of the ranking but for those at the places ``kept``."""
        by_layer: dict[int, list[Saved]] = {}
        for place, droppable in enumerate(self.ranking(stride)[:count]):
            if place in kept:
                continue
            by_layer.setdefault(droppable.layer, []).append(droppable.saved)
        demands = [
            Demand(min(saved.first_backward for saved in layer), tuple(saved.tensor for saved in layer))
            for layer in by_layer.values()
        ]
        moves = self.rematerializer.moves_for(demands, self.borders(stride)[1])
        return [_later(move, self.begin) for move in moves]


def _is_other(saved: Collection[int], tensor: int, other: int) -> bool:
    return other != tensor and other in saved


def _later(move: MemoryMove, ops: int) -> MemoryMove:
    """``move`` so many ops later."""
    if isinstance(move, Recompute):
        return replace(move, at=move.at + ops, ops=tuple(op + ops for op in move.ops))
    return replace(move, at=move.at + ops)


def batch_passes(step: Step) -> list[BatchPass]:
    """The passes of each micro-batch; the update belongs to the last."""
    forward = step.ops.phase == PHASES.index("forward")
    begins = [0, *(np.nonzero(forward[1:] & ~forward[:-1])[0] + 1).tolist(), len(step.ops)]
    if len(begins) == 2:
        return [BatchPass(0, step)]
    return [BatchPass(a, _ops_between(step, a, b)) for a, b in itertools.pairwise(begins)]


def _ops_between(step: Step, begin: int, end: int) -> Step:
    """Ops ``[begin, end)`` of ``step`` with all its tensors."""
    rows = range(begin, end)
    columns: dict[str, Any] = {}
    for column in fields(step.ops):
        columns[column.name] = getattr(step.ops, column.name)[begin:end]
    return replace(
        step,
        ops=type(step.ops)(**columns),
        inputs=step.inputs.take(rows),
        outputs=step.outputs.take(rows),
        release=None,
    )
