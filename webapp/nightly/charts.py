"""How a figure moved from night to night, its steps drawn in, as the JSON that ``plots.js`` draws."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from experiments.core.metrics import METRICS
from webapp.navigation import project_url
from webapp.nightly import steps
from webapp.nightly.calendar import Cell
from webapp.nightly.history import History, Point
from webapp.nightly.levels import Segment
from webapp.nightly.models import Schedule

#: States of a night that are marked in every chart, because they leave a gap or a half-filled night.
MARKED = ("skipped", "failed")


def chart(found: History, metric: str, schedule: Schedule | None, nights: Iterable[Cell]) -> dict[str, Any]:
    """One line for each run of the suite over the nights, with its levels; skipped and failed nights are
    marked. Points lead to their runs where there is a schedule, which a sample has not.
    """
    series, levels = [], []
    for index, (title, points) in enumerate(found.of(metric).items()):
        series.append(_line(title, points, schedule))
        pieces = steps.pieces(points)
        if len(pieces) > 1:
            levels.append(_levels(title, points, pieces, index))
    known = METRICS[metric]
    axes = {"x_label": "night (UTC)", "x_unit": "", "y_label": known.label, "y_unit": known.unit}
    marks = [{"x": _at(cell.night.slot), "text": cell.state} for cell in nights if cell.state in MARKED]
    plot = {"title": known.label, "kind": "scatter", **axes, "log": "", "sampled": None}
    return plot | {"series": [*series, *levels], "marks": marks}


def _at(slot: datetime) -> str:
    return f"{slot:%Y-%m-%d %H:%M}"


def _line(title: str, points: Sequence[Point], schedule: Schedule | None) -> dict[str, Any]:
    runs = (
        [project_url(schedule.project, "runs:run", run=point.run.pk) for point in points] if schedule else []
    )
    return {
        "name": title,
        "mode": "lines+markers",
        "x": [_at(point.slot) for point in points],
        "y": [point.value for point in points],
        "text": [f"revision {point.revision or 'unknown'}" for point in points],
        "href": runs,
    }


def _levels(title: str, points: Sequence[Point], pieces: Sequence[Segment], index: int) -> dict[str, Any]:
    """The levels, a line each with a gap between, in the color of the series number ``index``."""
    x: list[str | None] = []
    y: list[float | None] = []
    for piece in pieces:
        x += [_at(points[piece.first].slot), _at(points[piece.end - 1].slot), None]
        y += [piece.level, piece.level, None]
    return {"name": f"{title}: level", "mode": "lines", "x": x, "y": y, "of": index, "dash": "dash"}
