"""Series of logged runs as plots: figures of one kind together, drawn by what can be seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.core.metrics import known_or_plain
from webapp.logged.models import Series
from webapp.logged.points import Stretches, read_stretches

#: As wide as a plot on a laptop is in points; of many lines each has fewer.
STRETCHES, FEWEST = 500, 100
#: Points of a page.
MOST_POINTS = 15_000
#: Of so many lines in a plot the ends of their stretches are drawn too.
WITH_ENDS = 8
#: Plots of a page, of which the others are in the table alone.
MOST_PLOTS = 24
STEP, TIME = "step", "time"


def kind_of(name: str) -> str:
    """What is measured, wherever: ``train/loss`` and ``val/loss`` are drawn over one another."""
    return name.rsplit("/", 1)[-1]


def plots_of(series: Sequence[Series], runs: Mapping[Any, str], by: str) -> list[dict[str, Any]]:
    """A plot for each kind of figure, losses first and memory last; ``runs`` are the names of runs by their
    ids, empty where there is one alone. ``by`` is ``step`` or ``time`` (since the first point of each run).
    """
    kinds: dict[str, list[Series]] = {}
    for one in series:
        kinds.setdefault(kind_of(one.name), []).append(one)
    order = sorted(kinds, key=lambda kind: _rank(kind, kinds[kind]))[:MOST_PLOTS]
    shown = [one for kind in order for one in kinds[kind]]
    most = max(FEWEST, min(STRETCHES, MOST_POINTS // max(len(shown), 1)))
    found = read_stretches([one.pk for one in shown], most)
    begun: dict[Any, float] = {}
    for one in shown:
        first = min(found[one.pk].at, default=0.0)
        begun[one.logged_id] = min(begun.get(one.logged_id, first), first)
    return [
        _dots(kind, kinds[kind], found, runs)
        if runs and all(one.first_step == one.last_step for one in kinds[kind])
        else _plot(kind, kinds[kind], found, begun, runs, by)
        for kind in order
    ]


def _rank(kind: str, series: Sequence[Series]) -> tuple[int, int, str]:
    """What people look at first; then what has the most points."""
    place = 0 if "loss" in kind else 2 if series[0].name.startswith("memory/") else 1
    return place, -max(one.count for one in series), kind


def _dots(
    kind: str, series: Sequence[Series], found: Mapping[int, Stretches], runs: Mapping[Any, str]
) -> dict[str, Any]:
    """A lane for each run: what was logged at one step alone has no course."""
    known = known_or_plain(kind)
    by_name: dict[str, dict[str, Any]] = {}
    for one in series:
        line = by_name.setdefault(one.name, {"name": one.name, "x": [], "y": []})
        line["x"] += found[one.pk].mean
        line["y"] += [runs[one.logged_id]] * len(found[one.pk].mean)
    return {
        "title": known.label,
        "kind": "scatter",
        "series": list(by_name.values()),
        "lanes": list(dict.fromkeys(runs[one.logged_id] for one in series)),
        "x_label": known.label,
        "x_unit": known.unit,
        "y_label": "",
        "y_unit": "",
    }


def _plot(
    kind: str,
    series: Sequence[Series],
    found: Mapping[int, Stretches],
    begun: Mapping[Any, float],
    runs: Mapping[Any, str],
    by: str,
) -> dict[str, Any]:
    lines: list[dict[str, Any]] = []
    ends: list[dict[str, Any]] = []
    several = len({one.name for one in series}) > 1
    for place, one in enumerate(series):
        stretches, run = found[one.pk], runs.get(one.logged_id, "")
        name = f"{run}: {one.name}" if run and several else run or one.name
        x = stretches.steps if by == STEP else [at - begun[one.logged_id] for at in stretches.at]
        lines.append({"name": name, "x": x, "y": stretches.mean})
        if len(series) <= WITH_ENDS and stretches.least != stretches.mean:
            shared = {"x": x, "of": place, "dash": "dot"}
            ends.append({"name": f"{name}, least", "y": stretches.least, **shared})
            ends.append({"name": f"{name}, largest", "y": stretches.largest, **shared})
    known = known_or_plain(kind)
    return {
        "title": known.label,
        "kind": "line",
        "series": [*lines, *ends],
        "x_label": "step" if by == STEP else "time since the first point",
        "x_unit": "" if by == STEP else "s",
        "y_label": known.label,
        "y_unit": known.unit,
    }
