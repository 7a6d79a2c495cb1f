"""Parallel coordinates of a comparison: one line for each run over the shown figures, each between its
extremes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.core.metrics import METRICS
from experiments.core.units import human
from webapp.accounts.models import Project
from webapp.compare.comparison import Comparison, Entry
from webapp.compare.statistics import Estimate
from webapp.navigation import project_url

#: With fewer the table says more.
LINES_AT_LEAST, FIGURES_AT_LEAST = 3, 3


def parallel(comparison: Comparison, project: Project) -> dict[str, Any] | None:
    """Only lines that have every shown figure: one with a gap would have to be drawn through a
    made-up value.
    """
    metrics = [column.metric for column in comparison.metrics]
    entries = [entry for entry in comparison.entries if set(metrics) <= set(entry.estimates)]
    if len(entries) < LINES_AT_LEAST or len(metrics) < FIGURES_AT_LEAST:
        return None
    places = {metric: _places([entry.estimates[metric].value for entry in entries]) for metric in metrics}
    series = [
        _line(entry, metrics, [places[metric][index] for metric in metrics], project)
        for index, entry in enumerate(entries)
    ]
    axes = {"x_label": "figure", "x_unit": "", "y_label": "lowest 0, highest 1", "y_unit": ""}
    return {
        "title": "Parallel coordinates",
        "kind": "scatter",
        **axes,
        "log": "",
        "sampled": None,
        "series": series,
    }


def _places(values: Sequence[float]) -> list[float]:
    """Where each value lies between the lowest (0) and the highest (1); in the middle where all are equal."""
    low, high = min(values), max(values)
    return [(value - low) / (high - low) if high > low else 0.5 for value in values]


def _line(entry: Entry, metrics: Sequence[str], places: Sequence[float], project: Project) -> dict[str, Any]:
    url = project_url(project, "runs:run", run=entry.run.pk)
    return {
        "name": f"{entry.name}, {entry.mode}",
        "mode": "lines+markers",
        "x": [METRICS[metric].label for metric in metrics],
        "y": list(places),
        "text": [_shown(entry.estimates[metric], metric) for metric in metrics],
        "href": [url] * len(metrics),
    }


def _shown(found: Estimate, metric: str) -> str:
    return found.words or human(found.mean, METRICS[metric].unit)
