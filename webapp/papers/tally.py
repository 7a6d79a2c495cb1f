"""Claims counted by what became of them: the sentence of a page, its bar, and a cell for each claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from experiments.core.verdicts import (
    BY_PROXY,
    CANNOT,
    DIRECTION,
    FITS,
    FITTED,
    IDENTITY,
    MEANINGS,
    NOT_REPRODUCED,
    NOT_RUN,
    REPRODUCED,
)

#: Verdicts that a page draws alike: what color a cell has.
TONES = {
    REPRODUCED: "good",
    BY_PROXY: "good",
    DIRECTION: "part",
    NOT_REPRODUCED: "bad",
    FITTED: "given",
    IDENTITY: "given",
    FITS: "given",
    CANNOT: "cannot",
    NOT_RUN: "none",
}


@dataclass(frozen=True)
class Tally:
    """How many claims have which verdict."""

    counts: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def reproduced(self) -> int:
        """By proxy too."""
        return self._sum("good")

    @property
    def in_direction(self) -> int:
        return self._sum("part")

    @property
    def not_reproduced(self) -> int:
        return self._sum("bad")

    @property
    def rest(self) -> str:
        """What is no question of reproducing, in words: ``49 cannot be carried out here, 11 are not run``."""
        return ", ".join(self._rest())

    def _rest(self) -> Iterator[str]:
        if by_definition := self.counts.get(IDENTITY, 0):
            yield f"{by_definition} follow{_s(by_definition)} from the definition"
        if fits := self.counts.get(FITS, 0):
            yield f"{fits} only ask{_s(fits)} whether something fits"
        if fitted := self.counts.get(FITTED, 0):
            yield f"on {fitted} constants were fitted"
        if cannot := self.counts.get(CANNOT, 0):
            yield f"{cannot} cannot be carried out here"
        if not_run := self.counts.get(NOT_RUN, 0):
            yield f"{not_run} {'is' if not_run == 1 else 'are'} not run"

    @property
    def parts(self) -> list[tuple[str, str, int, str]]:
        """The bar: verdict, tone, count, meaning."""
        return [(word, TONES[word], count, MEANINGS[word]) for word, count in self.counts.items()]

    def _sum(self, tone: str) -> int:
        return sum(count for word, count in self.counts.items() if TONES[word] == tone)


def _s(count: int) -> str:
    return "s" if count == 1 else ""


@dataclass(frozen=True)
class YearBar:
    """How many systems were published in a year; ``share`` of the most."""

    year: int
    count: int
    share: float


def years_of(years: Iterable[int]) -> list[YearBar]:
    """A bar for each year that has any, from the first to the last."""
    counts = Counter(years)
    most = max(counts.values(), default=1)
    return [YearBar(year, counts[year], counts[year] / most) for year in sorted(counts)]
