"""Two figures of runs against each other, both the better the smaller: those on the front are beaten by no
other in both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.core.metrics import METRICS
from experiments.core.units import human
from webapp.compare import labels
from webapp.compare.answers.case import Case, value
from webapp.compare.entries import Entry
from webapp.compare.figures.marks import (
    DASHES,
    addresses,
    by_mechanism,
    figure_json,
    look_of,
    mechanism_of,
)
from webapp.compare.statistics import pareto_front

#: Values that reach over more than this are drawn on a logarithmic axis.
LOGARITHMIC = 3.0


def is_wide(values: Sequence[float]) -> bool:
    return max(values) > LOGARITHMIC * min(values) > 0


@dataclass(frozen=True)
class Pair:
    """The metrics ``x`` and ``y`` with the labels of their axes; ``name`` says how a run is called."""

    x: str
    y: str
    x_label: tuple[str, str]
    y_label: tuple[str, str]

    def draw(self, case: Case, ranked: Sequence[Entry], title: str) -> dict[str, Any] | None:
        entries = [entry for entry in ranked if {self.x, self.y} <= set(entry.estimates)]
        if not entries:
            return None
        points = [(value(entry, self.x), value(entry, self.y)) for entry in entries]
        best = [entries[place] for place in pareto_front(points, (True, True))]
        series = [*self._marks(entries, points, best, case), *self._staircase(best)]
        log = "y" if is_wide([y for _, y in points]) else ""
        return figure_json(title, "scatter", self.x_label, self.y_label, log=log, series=series)

    def _marks(
        self,
        entries: Sequence[Entry],
        points: Sequence[tuple[float, float]],
        best: Sequence[Entry],
        case: Case,
    ) -> Iterator[dict[str, Any]]:
        """A series for each mechanism; names stand where they cover no other, those of the front first."""
        family, place = case.comparison.family, {id(entry): index for index, entry in enumerate(entries)}
        scale = math.log10 if is_wide([y for _, y in points]) else float
        first = [place[id(entry)] for entry in best]
        shown = [(x, scale(y)) for x, y in points]
        names = labels.place_labels(shown, [entry.name for entry in entries], first=first)
        for mechanism, members in by_mechanism(entries, family).items():
            places = [place[id(entry)] for entry in members]
            yield {
                "name": mechanism,
                **look_of(mechanism, family),
                "mode": "markers+text",
                "always": True,
                "hover_only": True,
                "x": [points[index][0] for index in places],
                "y": [points[index][1] for index in places],
                "size": [12 if entry in best else 8 for entry in members],
                "text": [names[index][0] for index in places],
                "textposition": [names[index][1] for index in places],
                "hover": [self._describe(entry) for entry in members],
                "href": addresses(members, case.project),
            }

    def _describe(self, entry: Entry) -> str:
        told = (
            f"{METRICS[name].label} {human(value(entry, name), METRICS[name].unit)}"
            for name in (self.x, self.y)
        )
        return f"{entry.name}, {mechanism_of(entry)}<br>{', '.join(told)}"

    def _staircase(self, best: Sequence[Entry]) -> Iterator[dict[str, Any]]:
        points = sorted((value(entry, self.x), value(entry, self.y)) for entry in best)
        if len(points) > 1:
            line = {"mode": "lines", "shape": "hv", "color": "ink-soft", "dash": DASHES[2], "always": True}
            x, y = [x for x, _ in points], [y for _, y in points]
            yield {"name": "Pareto front", **line, "x": x, "y": y, "hover": ["Pareto front"] * len(points)}
