"""What several simulations of one live run say of it, figure by figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Prediction:
    """Of each figure the middle one of the simulations, the least and the largest."""

    middle: Mapping[str, float]
    low: Mapping[str, float]
    high: Mapping[str, float]

    @classmethod
    def over(
        cls, found: Sequence[Mapping[str, float]], middle: Callable[[Sequence[float]], float]
    ) -> Prediction:
        """Of the figures that each simulation ``found``; one that some lack is of those that have it."""
        seen = {name: [one[name] for one in found if name in one] for name in found[0]}
        pick = (middle, min, max)
        return cls(*({name: choose(values) for name, values in seen.items()} for choose in pick))

    def describe(self, names: Sequence[str]) -> Mapping[str, Mapping[str, object]]:
        """As a result tells it, of those of ``names`` that were foretold."""
        told = [name for name in names if name in self.middle]
        return {
            "predicted": {name: self.middle[name] for name in told},
            "predicted_range": {name: [self.low[name], self.high[name]] for name in told},
        }
