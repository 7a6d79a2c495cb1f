"""The plots of a comparison, as the JSON that ``plots.js`` draws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments.core.metrics import METRICS
from webapp.accounts.models import Project
from webapp.compare.choice import Choice
from webapp.compare.comparison import Comparison, Entry, Line
from webapp.compare.parameters import label_of
from webapp.compare.statistics import pareto_front
from webapp.navigation import project_url

#: So many points have their names beside them; more would overlap, and the name is on hover.
LABELLED = 12
USUAL_AXES = (
    ("step_time", "peak_memory"),
    ("step_time", "peak_memory_per_device"),
    ("compile_time", "latency"),
    ("avg_queueing_delay", "avg_jct"),
    ("throughput", "normalized_latency_p50"),
)


@dataclass(frozen=True)
class Front:
    """The lines of one mode that no other line of that mode beats in both axes."""

    mode: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Scatter:
    plot: dict[str, Any]
    x: str
    y: str
    fronts: tuple[Front, ...]


def axes(comparison: Comparison, choice: Choice) -> tuple[str, str] | None:
    """The chosen axes, else the usual pair that the runs report, else their first two metrics."""
    names = comparison.metric_names
    if len(names) < 2:
        return None
    usual = next((pair for pair in USUAL_AXES if set(pair) <= set(names)), (names[1], names[0]))
    x = choice.x if choice.x in names else usual[0]
    return x, choice.y if choice.y in names else usual[1]


def scatter(comparison: Comparison, choice: Choice, project: Project) -> Scatter | None:
    """One series for each mode and family, and the Pareto front of each mode as a staircase."""
    chosen = axes(comparison, choice)
    if chosen is None:
        return None
    x, y = chosen
    having = [entry for entry in comparison.entries if x in entry.estimates and y in entry.estimates]
    if not having:
        return None
    names = _names(comparison)
    groups = dict.fromkeys((entry.mode, entry.run.family) for entry in having)
    series = []
    for mode, family in groups:
        members = [entry for entry in having if (entry.mode, entry.run.family) == (mode, family)]
        series.append(_points(f"{family}, {mode}", members, x, y, names, project))
    fronts = _fronts(having, x, y)
    series += [_staircase(front, x, y) for front in fronts if len(front.entries) > 1]
    plot = _plot(f"{METRICS[y].label} against {METRICS[x].label}", "scatter", series, y)
    plot |= {"x_label": METRICS[x].label, "x_unit": METRICS[x].unit}
    return Scatter(plot, x, y, fronts)


def _fronts(entries: Sequence[Entry], x: str, y: str) -> tuple[Front, ...]:
    """None where an axis has no direction: then nothing is better than anything."""
    lower_x, lower_y = METRICS[x].lower_is_better, METRICS[y].lower_is_better
    if lower_x is None or lower_y is None:
        return ()
    found = []
    for mode in dict.fromkeys(entry.mode for entry in entries):
        members = [entry for entry in entries if entry.mode == mode]
        points = [(entry.estimates[x].mean, entry.estimates[y].mean) for entry in members]
        front = pareto_front(points, (lower_x, lower_y))
        found.append(Front(mode, tuple(members[index] for index in front)))
    return tuple(found)


def _points(
    name: str, entries: Sequence[Entry], x: str, y: str, names: dict[int, str], project: Project
) -> dict[str, Any]:
    return {
        "name": name,
        "family": entries[0].run.family,
        "mode": "markers+text" if len(entries) <= LABELLED else "markers",
        "x": [entry.estimates[x].mean for entry in entries],
        "y": [entry.estimates[y].mean for entry in entries],
        "text": [names[id(entry)] for entry in entries],
        "href": [project_url(project, "runs:run", run=entry.run.pk) for entry in entries],
    }


def _staircase(front: Front, x: str, y: str) -> dict[str, Any]:
    return {
        "name": f"Pareto front, {front.mode}",
        "mode": "lines",
        "shape": "hv" if METRICS[x].lower_is_better == METRICS[y].lower_is_better else "vh",
        "x": [entry.estimates[x].mean for entry in front.entries],
        "y": [entry.estimates[y].mean for entry in front.entries],
        "text": [entry.name for entry in front.entries],
    }


def bars(comparison: Comparison, choice: Choice, project: Project) -> dict[str, Any] | None:
    """One bar for each line, one colour for each mode; ``?bar=`` names the metric."""
    names = comparison.metric_names
    if not names:
        return None
    usual = axes(comparison, choice)
    metric = choice.bar if choice.bar in names else (usual[0] if usual else names[0])
    labels = _names(comparison)
    having = [entry for entry in comparison.entries if metric in entry.estimates]
    series = []
    for mode in dict.fromkeys(entry.mode for entry in having):
        members = [entry for entry in having if entry.mode == mode]
        x = [labels[id(entry)] for entry in members]
        y = [entry.estimates[metric].mean for entry in members]
        href = [project_url(project, "runs:run", run=entry.run.pk) for entry in members]
        series.append({"name": mode, "x": x, "y": y, "href": href})
    return _plot(METRICS[metric].label, "bar", series, metric) | {"metric": metric}


def _plot(title: str, kind: str, series: list[dict[str, Any]], y: str) -> dict[str, Any]:
    unit = METRICS[y].unit
    return {
        "title": title,
        "kind": kind,
        "x_label": "",
        "x_unit": "",
        "y_label": METRICS[y].label,
        "y_unit": unit,
        "log": "",
        "sampled": None,
        "series": series,
    }


def _names(comparison: Comparison) -> dict[int, str]:
    """A name for each line, each used once: the policy, with what differs where the policy says too little."""
    policies = Counter(line.entry.name for line in comparison.lines)
    used: Counter[str] = Counter()
    found: dict[int, str] = {}
    for line in comparison.lines:
        name = line.entry.name if policies[line.entry.name] == 1 else _long_name(line)
        used[name] += 1
        found[id(line.entry)] = name if used[name] == 1 else f"{name} #{used[name]}"
    return found


def _long_name(line: Line) -> str:
    parts = [f"{label_of(p.key)} {p.shown}" for p in line.parameters if p.differs and p.value is not None]
    return ", ".join([line.entry.name, *parts[:4]])[:80]
