"""Parallel coordinates of a comparison: one line for each run over the shown figures, on axes with units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.core.metrics import METRICS
from experiments.core.units import human
from webapp.accounts.models import Project
from webapp.compare.comparison import Comparison
from webapp.compare.entries import Entry
from webapp.compare.figures.marks import addresses, by_mechanism, look_of, mechanism_of
from webapp.compare.figures.scale import round_numbers
from webapp.compare.statistics import Estimate

#: With fewer the table says more.
LINES_AT_LEAST, FIGURES_AT_LEAST = 3, 3
TICKS = 5
#: Hues of families where a comparison has several.
MIXED = "family-{}"


def coordinates(comparison: Comparison, project: Project) -> dict[str, Any] | None:
    """Only lines that have every shown figure: one with a gap would have to be drawn through a
    made-up value.
    """
    metrics = [column.metric for column in comparison.metrics]
    entries = [entry for entry in comparison.entries if set(metrics) <= set(entry.estimates)]
    if len(entries) < LINES_AT_LEAST or len(metrics) < FIGURES_AT_LEAST:
        return None
    ends = {metric: _ends([entry.estimates[metric].value for entry in entries]) for metric in metrics}
    return {
        "axes": [_axis(metric, *ends[metric]) for metric in metrics],
        "legend": _legend(entries, comparison.family),
        "lines": [_line(entry, ends, comparison.family, project) for entry in entries],
    }


def _legend(entries: Sequence[Entry], family: str) -> list[tuple[str, str]]:
    """What each hue stands for: a mechanism, or the family where there are several."""
    if not family:
        return [(one, MIXED.format(one)) for one in dict.fromkeys(entry.run.family for entry in entries)]
    return [(name, look_of(name, family)["color"]) for name in by_mechanism(entries, family)]


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """The lowest and the highest; a little about them where all are equal."""
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2)


def _axis(metric: str, low: float, high: float) -> dict[str, Any]:
    """Label, direction and ticks as (place from 0 to 1, words)."""
    known = METRICS[metric]
    ticks = _ticks(low, high, known.unit)
    better = {True: "↓", False: "↑", None: ""}[known.lower_is_better]
    return {
        "label": known.label,
        "better": better,
        "ticks": [[_place(t, low, high), human(t, known.unit)] for t in ticks],
    }


def _ticks(low: float, high: float, unit: str) -> list[float]:
    """Both ends and round numbers well apart from them."""
    inner = round_numbers(low, high, TICKS) if unit == "bytes" and low >= 0 else _decimal(low, high)
    return [low, *(tick for tick in inner if 0.1 < _place(tick, low, high) < 0.9), high]


def _decimal(low: float, high: float) -> list[float]:
    step = (high - low) / (TICKS - 1)
    return [low + step * count for count in range(1, TICKS - 1)]


def _place(number: float, low: float, high: float) -> float:
    return (number - low) / (high - low)


def _line(
    entry: Entry, ends: dict[str, tuple[float, float]], family: str, project: Project
) -> dict[str, Any]:
    color = look_of(mechanism_of(entry), family)["color"] if family else MIXED.format(entry.run.family)
    return {
        "name": f"{entry.name}, {entry.mode}",
        "color": color,
        "href": addresses([entry], project)[0],
        "places": [_place(entry.estimates[metric].value, *ends[metric]) for metric in ends],
        "texts": [_show(entry.estimates[metric], metric) for metric in ends],
    }


def _show(found: Estimate, metric: str) -> str:
    return found.words or human(found.mean, METRICS[metric].unit)
