"""0/1 knapsack, three ways. Weights are shares of a whole, the capacity is a share too; values are to be
gained.

All answer with the indices chosen, ascending. Items without weight are always chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.core.progress import Progress, silent
from experiments.memory.planning.milp import MixedIntegerProgram, NodeBound

#: Resolution of weights in ``dynamic``: one part in ten thousand, as torch's solver.
PARTS = 10_000

Solver = Callable[[Sequence[float], Sequence[float], float], list[int]]


def greedy(weights: Sequence[float], values: Sequence[float], capacity: float) -> list[int]:
    """By value per weight, best first; what does not fit is skipped."""
    order = sorted(range(len(weights)), key=lambda i: (-_density(weights[i], values[i]), i))
    chosen, used = [], 0.0
    for i in order:
        if used + weights[i] <= capacity:
            chosen.append(i)
            used += weights[i]
    return sorted(chosen)


def _density(weight: float, value: float) -> float:
    return value / weight if weight > 0 else float("inf")


def dynamic(weights: Sequence[float], values: Sequence[float], capacity: float) -> list[int]:
    """Dynamic programming over weights rounded to ``PARTS``; exact but for that rounding."""
    parts = [round(weight * PARTS) for weight in weights]
    room = int(capacity * PARTS + 1e-9)
    best = np.zeros(room + 1)
    takes = np.zeros((len(parts), room + 1), np.bool_)
    for i, (part, value) in enumerate(zip(parts, values, strict=True)):
        if part > room:
            continue
        with_it = np.concatenate((np.full(part, -1.0), best[: room + 1 - part] + value))
        takes[i] = with_it > best
        best = np.where(takes[i], with_it, best)
    chosen, left = [], room
    for i in reversed(range(len(parts))):
        if takes[i, left] or (parts[i] == 0 and values[i] == 0):
            chosen.append(i)
            left -= parts[i]
    return chosen[::-1]


@dataclass
class IntegerKnapsack:
    """Integer programming (HiGHS): exact, or the best found within ``nodes`` nodes of a tree.

    What is chosen by ``greedy`` stands in where no solution was found by then.
    """

    nodes: int = 1_000_000
    progress: Progress = silent
    ended_early: bool = False

    def __call__(self, weights: Sequence[float], values: Sequence[float], capacity: float) -> list[int]:
        program = MixedIntegerProgram()
        items = [program.binary(-value) for value in values]
        program.row(zip(items, weights, strict=True), at_most=capacity)
        found = program.solve(NodeBound(self.nodes, self.progress))
        self.ended_early |= found is None or not found.proven
        if found is None:
            return greedy(weights, values, capacity)
        return [item for item in items if found.chosen(item)]
