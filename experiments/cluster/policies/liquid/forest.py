"""How much of its GPUs a job will use: a random forest on the jobs that have ended (section 4).

Features are words (model, user, name, group) and numbers (batch, GPUs). Every ended job is fed back.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from experiments.core.errors import BadInput

TREES = 100
#: How much more than at the last fit must have ended before the next.
GROWTH = 1.25
PARAMETERS = {
    "objective": "regression",
    "boosting": "rf",
    "bagging_freq": 1,
    "bagging_fraction": 0.8,
    "feature_fraction": 1.0,
    "num_leaves": 63,
    "min_data_in_leaf": 2,
    "min_data_per_group": 2,
    "cat_smooth": 1.0,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "verbose": -1,
    "seed": 0,
}


class Features(NamedTuple):
    """What is known of a job when it is submitted."""

    words: tuple[str, ...]
    batch: float
    gpus: int


@dataclass
class Forest:
    """Parts of a GPU that ended jobs used, and trees over how far they were from their ``mean``.

    ``first_fit`` jobs must have ended before it says anything; nothing is estimated below the ``least`` used.
    """

    first_fit: int
    rows: list[tuple[float, ...]] = field(default_factory=list)
    used: list[float] = field(default_factory=list)
    codes: dict[str, int] = field(default_factory=dict)
    trees: Any = None
    mean: float = 0.0
    least: float = 1.0
    fitted: int = 0
    guesses: dict[Features, float] = field(default_factory=dict)

    def add(self, features: Features, used: float) -> None:
        """Note what a job used that has ended, and fit the trees anew where enough more has."""
        self.rows.append(self._row(features, grow=True))
        self.used.append(used)
        if len(self.rows) >= max(self.first_fit, self.fitted * GROWTH):
            self._fit()

    def predict(self, features: Features) -> float | None:
        """The part of a GPU that such a job will use; ``None`` while too few have ended."""
        if self.trees is None:
            return None
        if features not in self.guesses:
            found = self.mean + self.trees.predict(np.array([self._row(features)]), num_threads=1)[0]
            self.guesses[features] = float(np.clip(found, self.least, 1.0))
        return self.guesses[features]

    def _fit(self) -> None:
        self.fitted = len(self.rows)
        self.guesses.clear()
        try:
            library = importlib.import_module("lightgbm")
        except ImportError:
            what = "the forest needs lightgbm"
            raise BadInput(what, "knobs.estimate", "pip install lightgbm, or estimate = false") from None
        words, used = len(self.rows[0]) - 2, np.array(self.used)
        self.mean, self.least = float(used.mean()), float(used.min())
        data = library.Dataset(
            np.array(self.rows),
            label=used - self.mean,
            categorical_feature=list(range(words)),
            params=PARAMETERS,
        )
        self.trees = library.train(PARAMETERS, data, num_boost_round=TREES)

    def _row(self, features: Features, *, grow: bool = False) -> tuple[float, ...]:
        """Numbers for words; -1 for one of which nothing has ended."""
        words = [
            self.codes.setdefault(word, len(self.codes)) if grow else self.codes.get(word, -1)
            for word in features.words
        ]
        return *map(float, words), features.batch, float(features.gpus)
