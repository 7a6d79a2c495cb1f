"""A suite's figures against what was published: one point for each row, and the line where both are equal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.core.metrics import METRICS
from experiments.core.paper import WIDEST
from experiments.core.published_figures import Against
from experiments.core.suites import Suite
from experiments.core.verdicts import FITTED, NOT_REPRODUCED, REPRODUCED
from webapp.compare.figures.marks import figure_json
from webapp.compare.templatetags.comparison import change

#: Hue and shape by verdict; a row with a reservation has none.
LOOKS = {
    REPRODUCED: {"color": "plot-3", "symbol": "circle"},
    NOT_REPRODUCED: {"color": "plot-4", "symbol": "square"},
    FITTED: {"color": "plot-8", "symbol": "circle-open"},
    "": {"color": "ink-soft", "symbol": "diamond-open"},
}
WITHOUT = "without a verdict"
LINE = {"color": "ink-soft", "mode": "lines", "always": True}


def draw_agreement(suite: Suite, rows: Sequence[Against]) -> dict[str, Any] | None:
    """``None`` where no row has both figures, or they are not positive: both axes are logarithmic."""
    having = [row for row in rows if row.ours and suite.figure_of(row.title)[1] == suite.value]
    if not having or min(min(row.published, row.ours or 0.0) for row in having) <= 0:
        return None
    metric = METRICS[suite.value]
    groups = {name: [row for row in having if row.verdict == name] for name in LOOKS}
    return figure_json(
        f"{metric.label}: ours against {suite.published_as}",
        "scatter",
        (f"{suite.published_as}, logarithmic", metric.unit),
        (f"ours: {metric.label}", metric.unit),
        log="xy",
        series=[*(_points(name, found) for name, found in groups.items() if found), *_lines(having)],
    )


def _points(verdict: str, rows: Sequence[Against]) -> dict[str, Any]:
    return {
        "name": verdict or WITHOUT,
        **LOOKS[verdict],
        "x": [row.published for row in rows],
        "y": [row.ours for row in rows],
        "hover": [f"{row.title} ({change(row.error or 0.0)})" for row in rows],
    }


def _lines(rows: Sequence[Against]) -> list[dict[str, Any]]:
    """Where both are equal, and the ends of what counts as reproduced."""
    published = [row.published for row in rows]
    ends = [min(published), max(published)]
    share = f"{WIDEST:.0%} off"
    return [
        {"name": "equal", **LINE, "x": ends, "y": ends},
        {"name": share, **LINE, "dash": "dot", "x": ends, "y": [end * (1 + WIDEST) for end in ends]},
        {"name": share, **LINE, "dash": "dot", "of": 0, "x": ends, "y": [end * (1 - WIDEST) for end in ends]},
    ]
