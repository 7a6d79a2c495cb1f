"""Adaptation policies: monitors, a condition over some evaluations, and an action (section 3)."""

from __future__ import annotations

from dataclasses import dataclass, field

from experiments.cluster.interface.measurements import Measurement

#: Actions on a job's workers and batch.
DOUBLE, HALVE, KEEP = "double", "halve", "keep"


def noise_scale(measured: Measurement, initial: float) -> float:
    """The batch at which gradients are half noise (McCandlish et al.), in samples.

    Variance and squared norm are those at ``initial`` samples.
    """
    if measured.square <= 0:
        return float("inf") if measured.variance > 0 else 0.0
    return measured.variance / measured.square * initial


@dataclass
class NoiseAdaptation:
    """Double when noise is above ``above`` batches for so many ``evaluations``, halve below ``below``."""

    evaluations: int
    above: float
    below: float
    seen: list[str] = field(default_factory=list)

    def evaluate(self, noise: float, batch: float) -> str:
        """Return what to do after one more evaluation; after an action counting begins anew."""
        leaning = DOUBLE if noise > self.above * batch else HALVE if noise < self.below * batch else KEEP
        self.seen = [*self.seen, leaning][-self.evaluations :]
        if leaning == KEEP or self.seen != [leaning] * self.evaluations:
            return KEEP
        self.seen = []
        return leaning
