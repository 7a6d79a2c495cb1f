"""What steps are worth: the epochs of an application and the noise of its gradients, by batch.

Progress is counted in steps of the initial batch. A step of a batch ``M`` is worth
``(v + q) / (v M0 / M + q)`` of those, with the variance ``v`` and the squared norm ``q`` of gradients at the
initial batch ``M0`` (section 3.1 of Pollux, OSDI'21). Between two validated batches numbers are interpolated.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property

import numpy as np

from experiments.workloads.profiles.training_runs import TrainingRun, Validation
from experiments.workloads.step import Floats

#: Progress within this part of an epoch's end has reached it: sums of floating-point times are not exact.
SLACK = 1e-9


class TrainingCurves:
    """The epochs of one application."""

    def __init__(self, run: TrainingRun) -> None:
        self._by_batch = run.validated
        self.batches = sorted(run.validated)
        self.epochs = min(len(each.progress) for each in run.validated.values())

    @cached_property
    def marks(self) -> list[float]:
        """The progress at which each epoch ends: the least of all batches validated."""
        curves = [each.progress[: self.epochs] for each in self._by_batch.values()]
        marks: list[float] = np.min(curves, axis=0).tolist()
        return marks

    def epoch(self, done: float) -> int:
        """The epoch, counted from 0, in which so much progress is made."""
        return bisect_right(self.marks, done + SLACK * self.marks[-1])

    def gradients(self, batch: float) -> tuple[Floats, Floats]:
        """By epoch, the squared norm of the gradient and its variance."""
        lower, upper, part = self._around(batch)
        square, variance = (
            _mix(getattr(lower, name), getattr(upper, name), part, self.epochs)
            for name in ("square", "variance")
        )
        return square, variance

    def gains(self, batch: float) -> Floats:
        """By epoch, what a step of ``batch`` is worth in steps of the initial one."""
        square, variance = self.gradients(batch)
        return gain(square, variance, batch / self.batches[0])

    def steps(self, batch: float) -> Floats:
        """By epoch, the steps of ``batch`` done at its end."""
        lower, upper, part = self._around(batch)
        return _mix(lower.steps, upper.steps, part, self.epochs)

    def history(self, batch: float, epoch: int) -> tuple[Floats, Floats]:
        """Steps of ``batch`` and the validated metric at the ends of the epochs before ``epoch``."""
        lower, upper, weights = self._around(batch)
        metric = _mix(lower.metric, upper.metric, weights, self.epochs)
        return self.steps(batch)[:epoch], metric[:epoch]

    def _around(self, batch: float) -> tuple[Validation, Validation, tuple[float, float, float]]:
        """The validated batches next to ``batch``, and how far it is from both, over their distance."""
        batch = min(max(batch, self.batches[0]), self.batches[-1])
        upper = next(each for each in self.batches if each >= batch)
        lower = next(each for each in reversed(self.batches) if each <= batch)
        weights = (batch - lower, upper - batch, float(upper - lower))
        return self._by_batch[lower], self._by_batch[upper], weights


def gain(square: Floats, variance: Floats, scale: float | Floats) -> Floats:
    """What a step of ``scale`` initial batches is worth in steps of one; 1 where gradients are zero."""
    below = np.asarray(variance / scale + square)
    worth: Floats = np.divide(variance + square, below, out=np.ones_like(below), where=below > 0)
    return worth


def _mix(lower: Floats, upper: Floats, weights: tuple[float, float, float], epochs: int) -> Floats:
    over, under, span = weights
    if not span:
        return lower[:epochs]
    mixed: Floats = (over * upper[:epochs] + under * lower[:epochs]) / span
    return mixed
