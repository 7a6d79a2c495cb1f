"""Sublinear memory (Chen et al. 2016): keep the borders of segments, drop what lies between, run segments again.

The paper's chain of n layers is here the forward pass of a step. A *candidate* is a place after a forward op where one
activation alone leads on (an articulation point); activations that live through more than half of the forward pass
(masks, positions) are kept and do not count. Variants: ``sqrt`` keeps every k-th of |C| candidates, k = floor(sqrt
|C|); ``greedy`` is the paper's budgeted walk (algorithm 3): bytes saved are summed up, and a candidate at which the sum
exceeds the budget is kept. Without a budget the walk is tried around b0 = sqrt(x y), x the bytes kept and y the largest
segment of a first walk, and the plan with the smallest peak wins (the paper's search over b; eight values).

Left open by the paper: the last segment is kept, its backward comes at once (knob); an op that changes a parameter or
optimizer state cannot run twice, its outputs are kept; a batch normalisation reruns on a scratch copy of its statistics.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from experiments.core.knobs import knob
from experiments.memory.interface import DeviceView, Drop, Lineage, MemoryPlan, MemoryPolicy, Move, Recompute
from experiments.memory.interface.activations import Saved, last_forward_op, saved_activations
from experiments.workloads.step import Step

GRID = 8


@dataclass(frozen=True)
class Candidate:
    """After forward op ``op`` only the tensors ``border`` lead on."""

    op: int
    border: frozenset[int]


@dataclass(frozen=True)
class Forward:
    """The forward pass as the algorithms see it: candidates in order, and bytes saved by each op."""

    candidates: tuple[Candidate, ...]
    saved: tuple[Saved, ...]
    through: frozenset[int]
    loss: int

    @property
    def saved_bytes(self) -> list[int]:
        amounts = [0] * (self.loss + 1)
        for saved in self.saved:
            amounts[saved.produced] += saved.bytes
        return amounts


def forward_of(step: Step, lineage: Lineage) -> Forward:
    """Candidates and saved activations of ``step``."""
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
        if len(crossing[op]) == 1 and settled and not step.ops.view[op]:
            found.append(Candidate(op, frozenset(crossing[op])))
    return Forward(tuple(found), tuple(saved_activations(step)), through, loss)


def every_kth(forward: Forward) -> list[Candidate]:
    """Every k-th candidate, k = floor(sqrt |C|)."""
    k = max(1, math.isqrt(len(forward.candidates)))
    return [candidate for i, candidate in enumerate(forward.candidates) if (i + 1) % k == 0]


def greedy(amounts: Sequence[float], candidates: Sequence[int], budget: float) -> list[int]:
    """Positions kept: sum up ``amounts``; at a candidate where the sum exceeds ``budget``, keep it and start again."""
    kept, total, allowed = [], 0.0, set(candidates)
    for position, amount in enumerate(amounts):
        total += amount
        if position in allowed and total > budget:
            kept.append(position)
            total = 0.0
    return kept


def plan_for(forward: Forward, lineage: Lineage, kept: Sequence[Candidate], keep_last: bool) -> MemoryPlan:
    """Drop what lies inside segments after its last forward use; rerun a segment when its backward begins."""
    borders = {tensor for candidate in kept for tensor in candidate.border} | forward.through
    ends = [candidate.op for candidate in kept]
    segments: dict[int, list[Saved]] = {}
    for saved in forward.saved:
        segment = sum(end < saved.produced for end in ends)
        droppable = (
            saved.tensor not in borders and saved.bytes > 0 and saved.first_backward > saved.last_forward + 1
        )
        if droppable and not (keep_last and segment == len(ends)):
            segments.setdefault(segment, []).append(saved)
    dropped = {saved.tensor for inside in segments.values() for saved in inside}
    here = borders | {saved.tensor for saved in forward.saved} - dropped
    moves: list[Move] = []
    for inside in segments.values():
        moves += _segment(inside, lineage, here)
    return MemoryPlan(tuple(moves), notes={"kept_after_ops": ends})


def _segment(inside: Sequence[Saved], lineage: Lineage, here: set[int]) -> list[Move]:
    """Drops and the rerun of one segment; tensors that cannot be made again stay."""
    at = min(saved.first_backward for saved in inside)
    again = [saved for saved in inside if lineage.chain([saved.tensor], here, at) is not None]
    wanted = [saved.tensor for saved in again]
    ops = lineage.chain(wanted, here, at) if wanted else None
    if ops is None:
        return []
    return [
        *(Drop(saved.last_forward + 1, saved.tensor) for saved in again),
        Recompute(at, ops, tuple(wanted)),
    ]


@dataclass(frozen=True)
class Checkpoint(MemoryPolicy):
    """Keeps segment borders, recomputes segments: O(sqrt n) memory for one extra forward pass."""

    name: ClassVar[str] = "checkpoint"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")

    variant: str = knob("sqrt", "how borders are chosen", choices=("sqrt", "greedy"))
    budget: float | None = knob(
        None, "bytes between kept candidates (greedy); empty: searched", low=0.0, high=2.0**50, unit="bytes"
    )
    keep_last: bool = knob(True, "the last segment is not dropped")

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        lineage = Lineage(step)
        forward = forward_of(step, lineage)
        if self.variant == "sqrt":
            return plan_for(forward, lineage, every_kth(forward), self.keep_last)
        if self.budget is not None:
            return self._walk(forward, lineage, self.budget)
        plans = [self._walk(forward, lineage, budget) for budget in self._budgets(forward)]
        peaks = [device.estimate(plan) for plan in plans]
        best = min(range(len(plans)), key=lambda i: (not peaks[i].fits, peaks[i].peak_memory))
        return plans[best]

    def _walk(self, forward: Forward, lineage: Lineage, budget: float) -> MemoryPlan:
        at = {candidate.op: candidate for candidate in forward.candidates}
        kept = greedy(forward.saved_bytes, list(at), budget)
        return plan_for(forward, lineage, [at[op] for op in kept], self.keep_last)

    def _budgets(self, forward: Forward) -> list[float]:
        """A geometric grid from b0 / sqrt 2 to b0 sqrt 2."""
        amounts = forward.saved_bytes
        first = greedy(
            amounts, [c.op for c in forward.candidates], sum(amounts) / max(1, len(every_kth(forward)))
        )
        edges = [0, *(op + 1 for op in first), len(amounts)]
        kept = sum(amounts[op] for op in first)
        largest = max(sum(amounts[a:b]) for a, b in itertools.pairwise(edges))
        centre = math.sqrt(max(1, kept) * max(1, largest))
        grid: list[float] = np.geomspace(centre / math.sqrt(2), centre * math.sqrt(2), GRID).tolist()
        return grid
