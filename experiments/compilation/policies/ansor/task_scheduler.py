"""Which task gets the next round of trials.

Ansor's gradient scheduler (section 6, and TVM's ``task_scheduler.py``).

The objective is f = sum of w_i g_i over tasks, g_i the best time of one call. What a further round of task i
would change is estimated from the past (its last D rounds) and the future (the lesser of two optimistic
guesses: the time falls as 1/t, or its throughput comes near that of the best similar task).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

#: Share of the past in the estimate, how much better than similar tasks a task may get, rounds looked back.
ALPHA, BETA, WINDOW = 0.2, 2.0, 3
#: Rounds after which a task without any valid trial is given up.
HOPELESS = 10


@dataclass(frozen=True)
class Standing:
    """A task as the scheduler sees it.

    ``best`` after each of its rounds (infinite: nothing valid yet), FLOPs of a call (``None``: unknown),
    ``group`` of similar tasks, and whether its space is ``exhausted``.
    """

    best: tuple[float, ...]
    weight: float = 1.0
    flops: float | None = None
    group: str = ""
    exhausted: bool = False

    @property
    def rounds(self) -> int:
        return len(self.best)


def gradient(task: Standing, similar: Sequence[Standing]) -> float:
    """df/dg times the estimated change of g by one round more; 0 for a task that is out."""
    if task.exhausted:
        return 0.0
    now = task.best[-1]
    if math.isinf(now):
        return 0.0 if task.rounds >= HOPELESS else -math.inf
    past = (now - task.best[-1 - WINDOW]) / WINDOW if task.rounds > WINDOW else 0.0
    past = past if math.isfinite(past) else 0.0
    guess = now * (1.0 - 1.0 / task.rounds)
    fastest = _fastest(similar)
    if task.flops is not None and fastest is not None:
        guess = min(guess, BETA * task.flops / fastest)
    return task.weight * (ALPHA * past + (1.0 - ALPHA) * (guess - now))


def _fastest(similar: Sequence[Standing]) -> float | None:
    """Return the most FLOP/s that a similar task reached."""
    rates = [task.flops / task.best[-1] for task in similar if task.flops is not None and task.best]
    return max(rates, default=None)


def next_task(tasks: Sequence[Standing], rng: np.random.Generator) -> int | None:
    """Each task once first; then the steepest descent, ties at random; ``None`` where every task is out."""
    for place, task in enumerate(tasks):
        if not task.rounds and not task.exhausted:
            return place
    slopes = [
        gradient(task, [other for other in tasks if other.group == task.group]) if task.rounds else 0.0
        for task in tasks
    ]
    left = [place for place, task in enumerate(tasks) if not task.exhausted and _is_hopeful(task)]
    left = left or [place for place, task in enumerate(tasks) if not task.exhausted]
    if not left:
        return None
    steepest = min(slopes[place] for place in left)
    ties = [place for place in left if slopes[place] == steepest]
    return ties[int(rng.integers(len(ties)))]


def _is_hopeful(task: Standing) -> bool:
    return math.isfinite(task.best[-1]) or task.rounds < HOPELESS
