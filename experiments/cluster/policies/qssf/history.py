"""What ended jobs say about one that waits: means of groups, and gradient-boosted trees over all of them.

A duration is learned as its logarithm by the trees, so that a few long jobs do not decide everything, and as
it is by the means.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from experiments.core.errors import BadInput
from experiments.workloads.step import Floats

#: Trees of a fit, and how much more than at the last fit must have ended before the next.
TREES, GROWTH = 40, 1.25
PARAMETERS = {
    "objective": "regression",
    "num_leaves": 31,
    "learning_rate": 0.1,
    "min_data_in_leaf": 5,
    "min_data_per_group": 5,
    "cat_smooth": 2.0,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "verbose": -1,
    "seed": 0,
}


class Kind(NamedTuple):
    """All that is known of a job when it is submitted: jobs of one kind are predicted alike."""

    user: str
    name: str
    tenant: str
    gpus: int

    def groups(self) -> Iterator[tuple[Any, ...]]:
        """Groups of jobs that are more and more unlike it."""
        yield (0, self.user, self.name, self.gpus)
        yield (1, self.user, self.name)
        yield (2, self.user, self.gpus)
        yield (3, self.user)
        yield (4, self.gpus)
        yield (5,)


@dataclass
class History:
    """Durations (s) of ended jobs. ``blend`` is the share of group means in a prediction."""

    blend: float
    first_fit: int
    sums: dict[tuple[Any, ...], tuple[float, int]] = field(default_factory=dict)
    rows: list[tuple[int, int, int, int]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    codes: tuple[dict[str, int], ...] = field(default_factory=lambda: ({}, {}, {}))
    trees: Any = None
    fitted: int = 0
    guesses: dict[Kind, float] = field(default_factory=dict)

    def add(self, kind: Kind, seconds: float) -> None:
        """Note a job that has ended."""
        for group in kind.groups():
            total, count = self.sums.get(group, (0.0, 0))
            self.sums[group] = (total + seconds, count + 1)
        self.rows.append(self._features(kind, grow=True))
        self.seconds.append(seconds)

    def predict(self, kind: Kind) -> float:
        """Seconds that a job of this kind will take; 1 while nothing has ended."""
        mean = self._mean(kind)
        if self.trees is None or self.blend == 1:
            return mean
        if kind not in self.guesses:
            row = np.array([self._features(kind)], np.float64)
            self.guesses[kind] = float(np.exp(self.trees.predict(row, num_threads=1)[0]))
        return self.blend * mean + (1 - self.blend) * self.guesses[kind]

    def refit(self) -> bool:
        """Fit the trees anew where enough more has ended; whether it did."""
        if self.blend == 1 or len(self.rows) < max(self.first_fit, self.fitted * GROWTH):
            return False
        self.fitted = len(self.rows)
        self.guesses.clear()
        logs = np.log(np.maximum(np.array(self.seconds), 1.0))
        self.trees = _grown(np.array(self.rows, np.float64), logs)
        return True

    def _mean(self, kind: Kind) -> float:
        """Of the most alike group of which a job has ended."""
        for group in kind.groups():
            if group in self.sums:
                total, count = self.sums[group]
                return total / count
        return 1.0

    def _features(self, kind: Kind, *, grow: bool = False) -> tuple[int, int, int, int]:
        """Numbers for words; -1 for one of which nothing has ended."""
        words = zip(self.codes, kind[:3], strict=True)
        user, name, tenant = (
            codes.setdefault(word, len(codes)) if grow else codes.get(word, -1) for codes, word in words
        )
        return user, name, tenant, kind.gpus


def _grown(features: Floats, labels: Floats) -> Any:
    """Boosted trees of which all but the number of GPUs are categories."""
    try:
        library = importlib.import_module("lightgbm")
    except ImportError:
        wanted = "pip install lightgbm, or blend = 1"
        raise BadInput("its model needs lightgbm", "knobs.blend", wanted) from None
    data = library.Dataset(features, label=labels, categorical_feature=[0, 1, 2], params=PARAMETERS)
    return library.train(PARAMETERS, data, num_boost_round=TREES)
