"""The baseline: points at random without repeats, task after task."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.compilation.interface.tuning import TuningProposal, TuningTask, TuningTrial


class RandomTuner:
    """Draws among all untried points of all tasks that have some left, in turns of ``batch``."""

    def __init__(self, tasks: Sequence[TuningTask], seed: int, batch: int = 64) -> None:
        self._tasks, self._batch = tasks, batch
        self._rng = np.random.default_rng(seed)
        self._taken: list[set[int]] = [set() for _ in tasks]
        self._next = 0

    def propose(self, count: int) -> list[TuningProposal]:
        """Return a batch of the next task in turn."""
        for _ in self._tasks:
            task, self._next = self._next, (self._next + 1) % len(self._tasks)
            drawn = self._tasks[task].space.fresh(min(count, self._batch), self._taken[task], self._rng)
            if drawn:
                self._taken[task].update(drawn)
                return [TuningProposal(task, index) for index in drawn]
        return []

    def learn(self, trials: Sequence[TuningTrial]) -> None:
        """Learn nothing from the times."""
