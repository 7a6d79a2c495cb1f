"""What a plan says of training itself: weights that asynchronous passes compute with, rates of updates,
adaptation.

Plain data, and the rules that follow from them as plain functions: the simulator, the live runner and the
tests use the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: newest: whatever is there, forward and backward. stash: backward uses what forward used. vertical: every
#: stage uses the version that the first stage used. delayed: the version before the newest, the same on every
#: stage.
WEIGHT_RULES = ("newest", "stash", "vertical", "delayed")
OPTIMIZERS = ("sgd", "adagrad")


@dataclass(frozen=True)
class WeightRule:
    """Which weights a pass of a pipeline without flushes computes with.

    ``every`` gradients of a worker make an update.

    The first ``synchronous`` updates are made with a flush before each: the plan's slots are ordered so.
    """

    kind: str
    every: int = 1
    synchronous: int = 0


@dataclass(frozen=True)
class Learning:
    """How an update follows from a gradient.

    - ``momentum``: holds the rate inside its velocity.
    - ``start``, ``warm_up``: the rate grows by a constant from ``start`` to ``rate`` over ``warm_up`` updates
      (Goyal et al., 2017, section 2.2).
    - ``corrected``: the velocity is rescaled when the rate changes (equation 10).
    - ``anneal``: for so many updates a stage's rate is divided by its delay, less and less (PipeMare, T1); 0:
      not.
    - ``decay``: what backward passes estimate the forward weights by (PipeMare, T2); 0: they do not.
    """

    optimizer: str = "sgd"
    rate: float = 0.05
    momentum: float = 0.0
    start: float | None = None
    warm_up: int = 0
    corrected: bool = False
    anneal: int = 0
    decay: float = 0.0

    def rate_at(self, update: int, delay: float = 0.0) -> float:
        """Return the rate of update ``update`` on weights with a staleness of ``delay``.

        Updates are numbered from 0.
        """
        rate = self.rate
        if self.start is not None and update < self.warm_up:
            rate = self.start + (self.rate - self.start) * update / self.warm_up
        return rate / annealed_divisor(delay, update, self.anneal)

    def velocity_factor(self, update: int) -> float:
        """Return what the velocity is multiplied by before the gradient is added.

        It is the momentum, corrected if asked for.
        """
        if not self.corrected or update == 0:
            return self.momentum
        return self.momentum * self.rate_at(update) / self.rate_at(update - 1)


def annealed_divisor(delay: float, update: int, anneal: int) -> float:
    """Return what PipeMare's T1 divides a stage's rate by.

    max(delay, 1) to the power 1 - min(update / anneal, 1). 1 without annealing.
    """
    if anneal == 0:
        return 1.0
    power = 1.0 - min(update / anneal, 1.0)
    return float(max(delay, 1.0) ** power)


def correction_share(decay: float, delay: float) -> float:
    """Return how much of the moving average of weight changes PipeMare's T2 keeps in an update.

    ``decay`` to the power 1 / delay.
    """
    return float(decay ** (1.0 / delay)) if delay > 0 else 0.0


def scaled_rate(reference_rate: float, reference_batch: float, batch: float) -> float:
    """Return the rate that grows with the batch: the linear scaling rule.

    Source: Goyal et al., 2017, section 2.1.
    """
    return reference_rate * batch / reference_batch


@dataclass(frozen=True)
class Adaptation:
    """What is changed while training goes on, and by which measurements (KungFu, OSDI'20).

    - ``most``: workers at most.
    - ``window``: steps after which one more worker takes part, until throughput gains less than ``gain``.
    - ``gain``: the least gain of throughput that is worth one more worker.
    - ``smoothing``: of the gradient noise.
    - ``variance``: weights are averaged (not gradients) until the variance of gradients falls below it, if
      given.
    """

    most: int
    window: int
    gain: float
    smoothing: float = 0.9
    variance: float | None = None


@dataclass(frozen=True)
class Training:
    """How weights are updated, where that is a method's point.

    - ``weights``: the rule of an asynchronous pipeline.
    - ``updates``: how many a measured run makes (an asynchronous one makes the plan's steps).
    - ``dataset``: the mini-batches that it visits in turn.
    """

    learning: Learning = Learning()
    weights: WeightRule | None = None
    adaptation: Adaptation | None = None
    updates: int = 32
    dataset: int = 4

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Training:
        weights, adaptation = row["weights"], row["adaptation"]
        return cls(
            learning=Learning(**row["learning"]),
            weights=WeightRule(**weights) if weights else None,
            adaptation=Adaptation(**adaptation) if adaptation else None,
            updates=row["updates"],
            dataset=row["dataset"],
        )
