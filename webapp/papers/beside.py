"""A project's own results of a suite next to those that shipped, figure by figure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from experiments.core.metrics import METRICS
from experiments.core.suites import Suite
from webapp.compare.comparison import Comparison
from webapp.compare.entries import Entry
from webapp.compare.statistics import Estimate, difference, is_better
from webapp.runs.results import HEADLINES

#: Figures that differ by less are the same: what rounding of other processors and libraries makes.
NOTHING = 1e-6


@dataclass(frozen=True)
class Pair:
    """A figure of a run, twice; ``None`` where one has none. ``change`` is ours relative to what shipped."""

    title: str
    metric: str
    shipped: Estimate | None
    own: Estimate | None

    @property
    def change(self) -> float | None:
        if self.shipped is None or self.own is None:
            return None
        return difference(self.own.mean, self.shipped.mean)

    @property
    def better(self) -> bool | None:
        return None if self.change is None else is_better(self.change, METRICS[self.metric].lower_is_better)

    @property
    def is_same(self) -> bool:
        """Whether both are equal, or their intervals overlap."""
        return (self.change is not None and abs(self.change) <= NOTHING) or self._overlaps()

    def _overlaps(self) -> bool:
        ends = [(one.low, one.high) for one in (self.shipped, self.own) if one]
        if len(ends) < 2 or any(end is None for pair in ends for end in pair):
            return False
        (low, high), (other_low, other_high) = ends
        return bool(low <= other_high and other_low <= high)  # type: ignore[operator]


@dataclass(frozen=True)
class Beside:
    """All pairs of a suite's table, in its order."""

    pairs: tuple[Pair, ...]

    @property
    def changed(self) -> list[Pair]:
        return [pair for pair in self.pairs if not pair.is_same]

    @property
    def words(self) -> str:
        """``57 of 60 figures are those that shipped``."""
        same, total = len(self.pairs) - len(self.changed), len(self.pairs)
        return f"{'All' if same == total else f'{same} of'} {total} figures are those that shipped"


def put_beside(suite: Suite, own: Comparison, shipped: Comparison) -> Beside:
    """The figures that the suite is about, of every run that either has."""
    mine = {entry.title: entry for entry in own.entries}
    theirs = {entry.title: entry for entry in shipped.entries}
    titles = [title for title, _ in suite.runs if title in mine or title in theirs]
    pairs = (_pairs(suite, title, mine.get(title), theirs.get(title)) for title in titles)
    return Beside(tuple(chain.from_iterable(pairs)))


def _pairs(suite: Suite, title: str, own: Entry | None, shipped: Entry | None) -> Iterator[Pair]:
    entry = own or shipped
    assert entry is not None
    named = (suite.value_of(title), *suite.also)
    for metric in named if suite.value else HEADLINES[entry.run.family]:
        pair = Pair(title, metric, _of(shipped, metric), _of(own, metric))
        if pair.shipped or pair.own:
            yield pair


def _of(entry: Entry | None, metric: str) -> Estimate | None:
    return entry.estimates.get(metric) if entry else None
