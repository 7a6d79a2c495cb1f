"""Gradient boosted trees on an objective of ours.

LightGBM grows the trees, we give gradients and decide when to stop.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.core.errors import BadInput

Floats = npt.NDArray[np.float64]
#: From predictions (and the round's number) to gradient and hessian for each row.
Objective = Callable[[Floats, int], tuple[Floats, Floats]]
LEAST_WEIGHT = 0.1


@dataclass(frozen=True)
class Growth:
    """How trees are grown.

    At most ``rounds``, each at most ``depth`` deep, a split worth at least ``least_gain``.
    """

    rounds: int = 100
    depth: int = 3
    rate: float = 0.3
    least_gain: float = 1e-4
    l2: float = 1.0
    patience: int = 20


class Trees:
    """A fitted ensemble. ``predict`` gives one margin for each row."""

    def __init__(self, booster: Any, rounds: int) -> None:
        self._booster, self.rounds = booster, rounds

    def predict(self, features: Floats) -> Floats:
        """Margins; the rows must have the columns that were fitted."""
        found: Floats = self._booster.predict(features, num_threads=1, num_iteration=self.rounds)
        return found


def fit(
    features: Floats,
    objective: Objective,
    growth: Growth,
    quality: Callable[[Floats], float],
    base: Floats | None = None,
) -> Trees:
    """Fit a model of trees on ``features``.

    Stops after ``growth.patience`` rounds without a better ``quality`` of the predictions.

    ``base`` are margins to start from (a model of other tasks); the trees predict what has to be added to
    them.
    """
    library = _library()
    parameters = _parameters(growth)
    data = library.Dataset(features, label=np.zeros(len(features)), params=parameters, free_raw_data=False)
    booster = library.Booster(parameters, data)
    margins = np.zeros(len(features)) if base is None else base
    best, best_round = -np.inf, 0
    for number in range(growth.rounds):
        if booster.update(fobj=lambda _, __: objective(margins, number)):  # noqa: B023
            break
        margins = margins + booster.predict(features, start_iteration=number, num_iteration=1, num_threads=1)
        reached = quality(margins)
        if reached > best + 1e-9:
            best, best_round = reached, number + 1
        elif number + 1 - best_round >= growth.patience:
            break
    return Trees(booster, best_round)


def _parameters(growth: Growth) -> dict[str, Any]:
    return {
        "objective": "none",
        "max_depth": growth.depth,
        "num_leaves": min(2**growth.depth, 1024),
        "learning_rate": growth.rate,
        "min_gain_to_split": growth.least_gain,
        "lambda_l2": growth.l2,
        "min_data_in_leaf": 1,
        "min_data_in_bin": 1,
        "min_sum_hessian_in_leaf": 0.0,
        "feature_pre_filter": False,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "verbose": -1,
        "seed": 0,
    }


def _library() -> Any:
    try:
        return importlib.import_module("lightgbm")
    except ImportError:
        raise BadInput(
            "the cost model needs lightgbm", "policy", "pip install lightgbm, or search = random"
        ) from None


def pairwise(labels: Floats, seed: int, partners: int = 16) -> Objective:
    """Return the rank objective: log(1 + exp(-(f_i - f_j))) over pairs with y_i > y_j.

    All pairs of a few hundred rows would cost more than the trees; each row meets ``partners`` others a
    round, drawn anew each time, which has the same expectation.
    """
    rows = np.arange(len(labels))

    def gradients(margins: Floats, number: int) -> tuple[Floats, Floats]:
        rng = np.random.default_rng([seed, number])
        others = rng.integers(len(labels), size=(partners, len(labels)))
        left, right = np.broadcast_to(rows, others.shape).ravel(), others.ravel()
        sign = np.sign(labels[left] - labels[right])
        wrong = 1.0 / (1.0 + np.exp(np.clip(sign * (margins[left] - margins[right]), -30, 30)))
        push, bend = sign * wrong, np.abs(sign) * wrong * (1.0 - wrong)
        size = len(labels)
        gradient = sums(right, push, size) - sums(left, push, size)
        hessian = sums(left, bend, size) + sums(right, bend, size)
        return gradient, np.maximum(hessian, 1e-16)

    return gradients


def weighted_square(labels: Floats, group: npt.NDArray[np.int64]) -> Objective:
    """Squared error of each program's sum of rows, weighted by its label.

    The fast programs have to be right.

    ``labels`` (programs) are normalized throughputs; ``group`` (rows) says whose row each is. No weight is
    below ``LEAST_WEIGHT``: TVM gives a failed program no weight at all, so it teaches nothing (TenSet has the
    same floor).
    """
    weight = np.maximum(labels, LEAST_WEIGHT)

    def gradients(margins: Floats, number: int) -> tuple[Floats, Floats]:
        missed = sums(group, margins, len(labels)) - labels
        return (missed * weight)[group], weight[group]

    return gradients


def sums(group: npt.NDArray[np.int64], values: Floats, size: int) -> Floats:
    """Return the sum of each group's values."""
    return np.bincount(group, values, size).astype(np.float64)


def average_recall(margins: Floats, labels: Floats, top: int = 64) -> float:
    """Return how many of the n best are found, averaged over n = 1..``top``.

    Of the n best by ``labels`` those that are among the n best by ``margins``.
    """
    top = min(top, len(labels))
    rank = np.empty(len(labels), dtype=np.int64)
    rank[np.argsort(-labels, kind="stable")] = np.arange(len(labels))
    chosen = rank[np.argsort(-margins, kind="stable")[:top]]
    # A row counts for n once both its predicted and its true place are within n.
    within = np.maximum(np.arange(top), chosen)
    hits = np.cumsum(np.bincount(within[within < top], minlength=top)[:top])
    return float((hits / np.arange(1, top + 1)).mean())
