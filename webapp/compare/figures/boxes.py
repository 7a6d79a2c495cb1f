"""A box for each group of runs: its quartiles, and whiskers to the 5th and the 95th percentile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from experiments.core.metrics import known_or_plain
from experiments.core.units import human
from webapp.accounts.models import Project
from webapp.compare.choice import Choice
from webapp.compare.columns import KNOB
from webapp.compare.comparison import Comparison
from webapp.compare.entries import Entry
from webapp.compare.figures.curves import duration_ticks
from webapp.compare.figures.marks import figure_json
from webapp.compare.parameters import SEED, label_of, shown_value
from webapp.compare.statistics import FRACTIONS
from webapp.navigation import project_url
from webapp.runs.models import Run

#: Boxes that can be read below one another.
MOST = 40
#: So many runs or fewer are points as well.
MOST_POINTS = 1000
#: Values that reach over more than this are drawn on a logarithmic axis.
LOGARITHMIC = 20.0
ROW_HEIGHT, HEIGHT_OF_AXIS = 34, 90
POLICY = "policy"


@dataclass(frozen=True)
class Point:
    """A run's value; ``href`` is where a click on it leads."""

    value: float
    name: str
    href: str


@dataclass(frozen=True)
class Box:
    """``quantiles`` of ``count`` values, at ``FRACTIONS``."""

    label: str
    count: int
    quantiles: Sequence[float]
    points: Sequence[Point] = ()

    @property
    def median(self) -> float:
        return self.quantiles[len(self.quantiles) // 2]

    @property
    def words(self) -> str:
        return f"{self.count:,} run{'s' * (self.count != 1)}"


@dataclass(frozen=True)
class Boxes:
    """Boxes of ``metric``, of ``of`` groups the first. A comparison's are ``by`` one of its ``keys``, which
    have labels.
    """

    metric: str
    boxes: Sequence[Box]
    plot: dict[str, Any]
    of: int
    by: str = ""
    keys: Sequence[tuple[str, str]] = ()

    @property
    def height(self) -> int:
        """Of the figure, in pixels."""
        return HEIGHT_OF_AXIS + ROW_HEIGHT * len(self.boxes)

    @property
    def has_points(self) -> bool:
        return any(box.points for box in self.boxes)


def draw_boxes(metric: str, boxes: Sequence[Box]) -> Boxes | None:
    """The first of the boxes as ``plots.js`` draws them; none where no group has several runs."""
    shown = boxes[:MOST]
    if not any(box.count > 1 for box in shown):
        return None
    known = known_or_plain(metric)
    series = [_quartiles(shown, known.unit), *([_runs(shown)] if any(box.points for box in shown) else [])]
    axes = ((known.label, known.unit), ("", ""))
    numbers = _numbers(shown)
    log = "x" if max(numbers) > LOGARITHMIC * min(numbers) > 0 else ""
    ticks: dict[str, Any] = {"x_ticks": duration_ticks(numbers)} if log and known.unit == "s" else {}
    title = f"{known.label[:1].upper()}{known.label[1:]} by group"
    plot = figure_json(
        title, "boxes", *axes, log=log, series=series, groups=[box.label for box in shown], **ticks
    )
    return Boxes(metric, shown, plot, len(boxes))


def _numbers(boxes: Sequence[Box]) -> list[float]:
    """All that is drawn."""
    ends = [box.quantiles[place] for box in boxes for place in (0, -1)]
    return [*ends, *(point.value for box in boxes for point in box.points)]


def _quartiles(boxes: Sequence[Box], unit: str) -> dict[str, Any]:
    names = ("low", "q1", "median", "q3", "x")
    columns = zip(names, zip(*(box.quantiles for box in boxes), strict=True), strict=True)
    lanes = {"name": "quartiles", "y": list(range(len(boxes)))}
    hover = [_describe(box, unit) for box in boxes]
    return {**lanes, **{name: list(column) for name, column in columns}, "hover": hover}


def _describe(box: Box, unit: str) -> str:
    low, first, median, third, high = (human(value, unit) for value in box.quantiles)
    said = f"median {median}, half of them {first} to {third}, nine tenths {low} to {high}"
    return f"{box.label}: {box.words}<br>{said}"


def _runs(boxes: Sequence[Box]) -> dict[str, Any]:
    points = [(row, point) for row, box in enumerate(boxes) for point in box.points]
    told = {"y": [row for row, _ in points], "x": [point.value for _, point in points]}
    return {"name": "runs", **told, "text": [p.name for _, p in points], "href": [p.href for _, p in points]}


def boxes_of(comparison: Comparison, choice: Choice, keys: Sequence[str], project: Project) -> Boxes | None:
    """The runs of a comparison, unfolded, by one of the keys that ``group_keys`` found: numbers by size,
    others by their medians, the best first.
    """
    metric, by = box_metric(comparison, choice), choice.by if choice.by in keys else keys[0]
    groups: dict[str, list[tuple[float, Run]]] = {}
    for entry in sorted(comparison.entries, key=lambda entry: _rank(entry.parameters.get(by))):
        groups.setdefault(_label(entry, by), []).extend(_values(entry, metric))
    are_few = sum(map(len, groups.values())) <= MOST_POINTS
    found = [_box(label, values, project, are_few) for label, values in groups.items() if values]
    if not all(isinstance(entry.parameters.get(by), int | float) for entry in comparison.entries):
        found.sort(key=lambda box: box.median, reverse=known_or_plain(metric).lower_is_better is False)
    drawn = draw_boxes(metric, found)
    return replace(drawn, by=by, keys=[(key, label_of(key)) for key in keys]) if drawn else None


def _rank(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def box_metric(comparison: Comparison, choice: Choice) -> str:
    """The chosen metric, else the first that is shown."""
    shown = [column.metric for column in comparison.metrics]
    return choice.bar if choice.bar in comparison.metric_names else next(iter(shown), "")


def group_keys(comparison: Comparison, metric: str) -> list[str]:
    """Parameters with several values, of which one has several runs with the metric; policy first."""
    having = [entry for entry in comparison.entries if metric in entry.estimates]
    runs = sum(entry.estimates[metric].n for entry in having)
    keys = [POLICY, *(column.key for column in comparison.columns if not column.metric)]
    counts = {key: len({repr(entry.parameters.get(key)) for entry in having}) for key in dict.fromkeys(keys)}
    return [key for key, count in counts.items() if key != SEED and 1 < count < runs]


def _label(entry: Entry, key: str) -> str:
    if key == POLICY:
        return entry.name
    shown = shown_value(key, entry.parameters.get(key))
    return f"{label_of(key)} {shown}" if key.startswith((KNOB, "option.")) else str(shown)


def _values(entry: Entry, metric: str) -> list[tuple[float, Run]]:
    return [(run.figures[metric], run) for run in entry.runs if metric in run.figures]


def _box(label: str, values: Sequence[tuple[float, Run]], project: Project, has_points: bool) -> Box:
    quantiles = tuple(map(float, np.quantile([value for value, _ in values], FRACTIONS)))
    points = [point_of(value, run, project) for value, run in values] if has_points else ()
    return Box(label, len(values), quantiles, points)


def point_of(value: float, run: Run, project: Project) -> Point:
    name = ", ".join(filter(None, (run.policy, run.hardware, f"seed {run.seed}")))
    return Point(value, name, project_url(project, "runs:run", run=run.pk))
