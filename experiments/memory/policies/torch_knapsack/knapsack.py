"""0/1 knapsack, three ways. Weights are shares of a whole, the capacity is a share too; values are to be
gained.

All answer with the indices chosen, ascending. Items without weight are always chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

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


def integer(weights: Sequence[float], values: Sequence[float], capacity: float) -> list[int]:
    """Integer programming (HiGHS): exact."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    if not weights:
        return []
    fits = LinearConstraint(np.array([weights]), ub=capacity)
    found = milp(
        -np.array(values), constraints=fits, integrality=np.ones(len(weights), np.int64), bounds=Bounds(0, 1)
    )
    return [i for i, taken in enumerate(np.asarray(found.x).tolist()) if taken > 0.5]


SOLVERS: Mapping[str, Solver] = {"dp": dynamic, "greedy": greedy, "ilp": integer}
