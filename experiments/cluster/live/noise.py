"""The noise of a job's gradients, measured while it trains (section 3.1 of Pollux, OSDI'21).

The gradient of a batch is the mean of its parts' gradients. Of ``n`` equal parts, the squared norms are
``q + w`` in the mean and that of the mean gradient is ``q + w / n``, where ``q`` is the squared norm of the
true gradient and ``w`` the variance of a part's. Two batch sizes so tell both; a variance is in inverse
proportion to the batch. Parts are what processes compute, and what they accumulate; a step of one part is
paired with the step before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from experiments.cluster.planning.performance.goodput import gain

#: Steps of the initial batch over which estimates are averaged: single ones may be far off, or negative.
STEPS = 100
#: A variance below this is none that could be divided by.
LEAST = 1e-12


def estimate_noise(
    parts: int, mean_square: float, square_of_mean: float, scale: float
) -> tuple[float, float]:
    """Return the squared norm of the gradient and its variance at the initial batch, both without bias.

    ``mean_square`` is the mean of the squared norms of the parts' gradients, ``square_of_mean`` the squared
    norm of their mean, and ``scale`` how many initial batches all parts are together.
    """
    square = (parts * square_of_mean - mean_square) / (parts - 1)
    variance = scale * (mean_square - square_of_mean) / (parts - 1)
    return square, variance


@dataclass
class GradientNoise:
    """Moving averages of a job's estimates; larger batches weigh more."""

    square_sum: float = 0.0
    variance_sum: float = 0.0
    weight: float = 0.0

    def learn(self, square: float, variance: float, scale: float) -> None:
        """Take in the estimates of a step; of a job that diverged none, so that its work still ends."""
        if not math.isfinite(square + variance):
            return
        new = min(1.0, scale / STEPS)
        self.square_sum += new * (square - self.square_sum)
        self.variance_sum += new * (variance - self.variance_sum)
        self.weight += new * (1.0 - self.weight)

    @property
    def square(self) -> float:
        return max(self.square_sum / self.weight, 0.0) if self.weight else 0.0

    @property
    def variance(self) -> float:
        return max(self.variance_sum / self.weight, LEAST) if self.weight else LEAST

    def gain(self, scale: float) -> float:
        """Return what a step of ``scale`` initial batches is worth in steps of one."""
        if not self.weight:
            return 1.0
        return float(gain(np.array(self.square), np.array(self.variance), scale))
