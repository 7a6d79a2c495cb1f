"""The forward pass as a chain: places where little leads on (candidates), and what is saved between them."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.memory.interface import Lineage
from experiments.memory.interface.activations import Saved, last_forward_op, saved_activations
from experiments.workloads.step import Step


@dataclass(frozen=True)
class BorderCandidate:
    """After forward op ``op`` only the tensors ``border`` lead on."""

    op: int
    border: frozenset[int]


@dataclass(frozen=True)
class Forward:
    """The forward pass as segment algorithms see it.

    ``candidates`` in order, ``saved`` activations, ``loss`` the last forward op. ``through`` are activations
    that live through more than half of the forward pass (masks, positions): they are kept and count in no
    border.
    """

    candidates: tuple[BorderCandidate, ...]
    saved: tuple[Saved, ...]
    through: frozenset[int]
    loss: int

    @functools.cached_property
    def saved_bytes(self) -> list[int]:
        """Bytes of saved activations by the forward op that produces them."""
        amounts = [0] * (self.loss + 1)
        for saved in self.saved:
            amounts[saved.produced] += saved.bytes
        return amounts


def forward_of(step: Step, lineage: Lineage, most: int = 1) -> Forward:
    """Candidates whose border holds at most ``most`` tensors, and saved activations.

    With one tensor the candidates are articulation points.
    """
    loss = last_forward_op(step)
    spans = []
    for tensor in np.nonzero(~step.persistent & (step.first_use <= loss))[0].tolist():
        uses = [op for op in step.uses[tensor].tolist() if op <= loss]
        spans.append((tensor, uses[0], uses[-1]))
    through = frozenset(tensor for tensor, start, end in spans if end - start > loss / 2)
    crossing: list[set[int]] = [set() for _ in range(loss + 1)]
    for tensor, start, end in spans:
        for op in range(start, end) if tensor not in through else ():
            crossing[op].add(tensor)
    found = []
    for op in range(loss):
        settled = all(lineage.version(t, op + 1) == lineage.version(t, loss + 1) for t in crossing[op])
        if 1 <= len(crossing[op]) <= most and settled and not step.ops.view[op]:
            found.append(BorderCandidate(op, frozenset(crossing[op])))
    return Forward(tuple(found), tuple(saved_activations(step)), through, loss)


def greedy(amounts: Sequence[float], candidates: Collection[int], budget: float) -> list[int]:
    """Positions kept: sum up ``amounts``, and keep a candidate where the sum exceeds ``budget``.

    The sum starts again there.
    """
    kept, total, allowed = [], 0.0, set(candidates)
    for position, amount in enumerate(amounts):
        total += amount
        if position in allowed and total > budget:
            kept.append(position)
            total = 0.0
    return kept
