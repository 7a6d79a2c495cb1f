"""A policy's line over what was asked for: rates of arrivals, or scales of objectives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.core.metrics import METRICS
from experiments.core.units import human, significant
from webapp.compare.answers import serving
from webapp.compare.answers.case import Case, value
from webapp.compare.entries import Entry
from webapp.compare.figures.marks import addresses, curve_look


@dataclass(frozen=True)
class Axis:
    """What ``of`` finds that a run was asked; ``words`` have ``{}`` for it."""

    of: Callable[[Entry], float]
    words: str

    def line(
        self, index: int, entries: Sequence[Entry], metric: str, case: Case, across: str = ""
    ) -> dict[str, Any]:
        """``metric`` of ``entries`` of one policy, ascending; repeats say their spread.

        It is drawn over what was asked, or over the metric ``across``.
        """
        ordered = sorted(entries, key=self.of)
        return {
            "name": ordered[0].name,
            "mode": "lines+markers",
            **curve_look(index),
            "hover_only": True,
            "x": [value(entry, across) if across else self.of(entry) for entry in ordered],
            "y": [value(entry, metric) for entry in ordered],
            "hover": [self._describe(entry, metric) for entry in ordered],
            "href": addresses(ordered, case.project),
        }

    def _describe(self, entry: Entry, metric: str) -> str:
        found, unit = entry.estimates[metric], METRICS[metric].unit
        spread = f" ± {human(found.half_width, unit)}" if found.half_width is not None else ""
        return f"{entry.name} at {self.say(entry)}: {human(found.value, unit)}{spread}"

    def say(self, entry: Entry) -> str:
        return self.words.format(significant(self.of(entry)))


#: At which rate jobs or requests arrive.
RATES = Axis(serving.rate_of, "{}/s")
#: By what the objectives of a trace are multiplied.
SCALES = Axis(serving.scale_of, "{} times its objective")
