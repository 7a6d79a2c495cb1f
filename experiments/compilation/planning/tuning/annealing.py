"""Parallel simulated annealing over a space on a model's scores (AutoTVM, section 4; TVM's optimizer of that
name).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from experiments.compilation.interface.tuning import Digits, Floats, ScheduleSpace

Score = Callable[[Digits], Floats]
LOWEST_TEMPERATURE = 1e-12


@dataclass(frozen=True)
class Annealing:
    """``points`` walk at once for at most ``steps``.

    The temperature falls in a line from 1 to 0; the walk ends early after ``patience`` steps in which no
    better point was found.
    """

    points: int = 128
    steps: int = 500
    patience: int = 30


def accept_probability(change: Floats, temperature: float) -> Floats:
    """min(1, exp(change / temperature)); at temperature 0 only what is no worse is accepted."""
    if temperature < LOWEST_TEMPERATURE:
        return (change >= 0).astype(float)
    return np.exp(np.minimum(change / temperature, 0.0))


def temperature(step: int, steps: int) -> float:
    """1 at the first step, 0 at the last."""
    return 1.0 - step / max(steps - 1, 1)


def anneal(
    space: ScheduleSpace,
    score: Score,
    count: int,
    taken: Collection[int],
    rng: np.random.Generator,
    annealing: Annealing,
    start: Digits | None = None,
) -> tuple[list[int], Digits]:
    """Return the ``count`` best points met that are not ``taken``, best first, and the walkers.

    The walkers where they stand at the end.

    A move changes one knob to another value; a space that can be looked through is: its best points are then
    exact.
    """
    if space.is_small and space.size <= annealing.points * annealing.steps:
        return best_of(space, score, count, taken), np.zeros((0, len(space.knobs)), dtype=np.int64)
    digits = space.random_digits(annealing.points, rng) if start is None or not len(start) else start
    scores = score(digits)
    heap = _Best(count, taken)
    heap.offer(space.indices(digits), scores)
    changed = 0
    for step in range(annealing.steps):
        moved = _move(space, digits, rng)
        reached = score(moved)
        accepted = rng.random(len(digits)) < accept_probability(
            reached - scores, temperature(step, annealing.steps)
        )
        digits = np.where(accepted[:, None], moved, digits)
        scores = np.where(accepted, reached, scores)
        if heap.offer(space.indices(moved), reached):
            changed = step
        elif step - changed >= annealing.patience:
            break
    return heap.best(), digits


def best_of(space: ScheduleSpace, score: Score, count: int, taken: Collection[int]) -> list[int]:
    """Return the best points of a small space that are not ``taken``, by looking at all of them."""
    left = [point for point in space.points() if point not in taken]
    if not left:
        return []
    order = np.argsort(-score(space.digits(left)), kind="stable")[:count]
    return [left[i] for i in order.tolist()]


def _move(space: ScheduleSpace, digits: Digits, rng: np.random.Generator) -> Digits:
    """Each row with one knob, of those that have a choice, at another value."""
    free = np.flatnonzero(space.radices > 1)
    rows = np.arange(len(digits))
    column = free[rng.integers(len(free), size=len(digits))]
    radix = space.radices[column]
    moved = digits.copy()
    moved[rows, column] = (digits[rows, column] + rng.integers(1, radix)) % radix
    return moved


class _Best:
    """The best points offered so far, each once."""

    def __init__(self, count: int, taken: Collection[int]) -> None:
        self._count, self._taken = count, taken
        self._heap: list[tuple[float, int]] = []
        self._inside: set[int] = set()

    def offer(self, points: list[int], scores: Floats) -> bool:
        """Return whether one of the points is now among the best."""
        changed = False
        floor = self._heap[0][0] if len(self._heap) == self._count else -np.inf
        for place in np.flatnonzero(scores > floor).tolist():
            point, value = points[place], float(scores[place])
            if point in self._inside or point in self._taken:
                continue
            changed |= self._push(value, point)
        return changed

    def _push(self, value: float, point: int) -> bool:
        if len(self._heap) < self._count:
            heapq.heappush(self._heap, (value, point))
        elif value > self._heap[0][0]:
            self._inside.discard(heapq.heapreplace(self._heap, (value, point))[1])
        else:
            return False
        self._inside.add(point)
        return True

    def best(self) -> list[int]:
        return [point for _, point in sorted(self._heap, key=lambda entry: (-entry[0], entry[1]))]


def diverse(scores: Floats, digits: Digits, count: int) -> list[int]:
    """Return rows picked greedily by score plus the number of new knob values (submodular).

    A value is new when no row picked before has it.
    """
    seen: list[set[int]] = [set() for _ in range(digits.shape[1])]
    picked: list[int] = []
    left = list(range(len(scores)))
    while left and len(picked) < count:
        gains = [
            scores[row] + sum(int(value) not in known for value, known in zip(digits[row], seen, strict=True))
            for row in left
        ]
        row = left.pop(int(np.argmax(gains)))
        picked.append(row)
        for value, known in zip(digits[row], seen, strict=True):
            known.add(int(value))
    return picked
