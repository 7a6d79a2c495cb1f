"""A policy's line over the rates of arrivals that were asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.core.metrics import METRICS
from experiments.core.units import human, significant
from webapp.compare.answers.case import Case, value
from webapp.compare.comparison import Entry
from webapp.compare.figures.marks import addresses, curve_look

#: The parameter of a run that says at which rate jobs or requests arrive.
RATE = "option.rate"


def rate_of(entry: Entry) -> float:
    return float(entry.parameters.get(RATE) or 0)


def rate_line(index: int, entries: Sequence[Entry], metric: str, case: Case) -> dict[str, Any]:
    """``metric`` of ``entries`` of one policy, by ascending rate; repeats say their spread."""
    ordered = sorted(entries, key=rate_of)
    return {
        "name": ordered[0].name,
        "mode": "lines+markers",
        **curve_look(index),
        "hover_only": True,
        "x": [rate_of(entry) for entry in ordered],
        "y": [value(entry, metric) for entry in ordered],
        "hover": [_describe(entry, metric) for entry in ordered],
        "href": addresses(ordered, case.project),
    }


def _describe(entry: Entry, metric: str) -> str:
    found, unit = entry.estimates[metric], METRICS[metric].unit
    spread = f" ± {human(found.half_width, unit)}" if found.half_width is not None else ""
    return f"{entry.name} at {significant(rate_of(entry))}/s: {human(found.value, unit)}{spread}"
