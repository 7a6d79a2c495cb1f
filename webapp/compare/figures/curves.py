"""Curves of several runs over one another: how many are done by when, and what is kept at which rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

from django.db.models import F

from experiments.core.units import human
from webapp.compare.answers import cluster, serving
from webapp.compare.answers.case import Case
from webapp.compare.entries import Entry
from webapp.compare.figures.marks import curve_look, figure_json
from webapp.navigation import project_url
from webapp.runs.models import RunDocument

#: Durations (s) that a logarithmic axis names.
DURATIONS = (
    *(1e-3, 1e-2, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600),
    *(6 * 3600, 86400, 7 * 86400, 30 * 86400, 120 * 86400, 365 * 86400),
)
#: Those between, for an axis of few of them, from minutes on.
FINER = (
    *(60, 120, 300, 600, 1200, 1800, 3600, 2 * 3600, 3 * 3600, 6 * 3600, 12 * 3600),
    *(days * 86400 for days in (1, 2, 4, 7, 14, 30, 60, 120, 240, 365)),
)
#: Fewer ticks than these tell nothing of a logarithmic axis.
FEW_TICKS = 3
#: The distribution that a family's outcomes carry, with the words for it and for its axis.
DISTRIBUTIONS = {
    "cluster": ("jct_distribution", "Jobs done by then", "job completion time", "share of jobs"),
    "serving": (
        "normalized_latency_distribution",
        "Requests answered by then",
        "latency per output token",
        "share of requests",
    ),
}


def distribution(case: Case) -> dict[str, Any] | None:
    """One curve for each line, of repeats that of the first run; the further left the better."""
    name, title, across, up = DISTRIBUTIONS[case.comparison.family]
    is_cluster = case.comparison.family == "cluster"
    entries, load = cluster.at_most_load(case) if is_cluster else (serving.ranking(case), "")
    series = list(curve_lines(name, entries, case, _say_by_when))
    if not series:
        return None
    ticks = duration_ticks([x for line in series for x in line["x"]])
    return figure_json(
        f"{title}{load}", "line", (across, "s"), (up, ""), log="x", series=series, x_ticks=ticks
    )


def duration_ticks(seconds: Sequence[float]) -> dict[str, list[Any]]:
    """Ticks at durations that people know; below minutes, where they are few, 1, 2 and 5 of powers of ten."""
    low, high = min(seconds), max(seconds)
    shown = [one for one in DURATIONS if low <= one <= high]
    if len(shown) < FEW_TICKS and low >= FINER[0]:
        return _tick([one for one in FINER if low <= one <= high])
    if len(shown) < FEW_TICKS and low > 0:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        shown = [one for power in powers for lead in (1, 2, 5) if low <= (one := lead * 10.0**power) <= high]
    return _tick(shown)


def _tick(seconds: Sequence[float]) -> dict[str, list[Any]]:
    return {"values": [*seconds], "labels": [human(one, "s") for one in seconds]}


def curve_lines(
    name: str, entries: Sequence[Entry], case: Case, describe: Callable[[str, float, float], str]
) -> Iterator[dict[str, Any]]:
    """A line for each run whose outcome has the curve; ``describe`` gives words for a name and a point."""
    found = read_curves(name, entries)
    for entry in entries:
        curve = found.get(entry.run.pk) or {}
        points = [(x, y) for x, y in zip(curve.get("x") or (), curve.get("y") or (), strict=True) if x > 0]
        if not points:
            continue
        said = entry.name if case.comparison.family == "cluster" else _name(entry)
        yield {
            "name": said,
            **curve_look(entries.index(entry)),
            "x": [x for x, _ in points],
            "y": [y for _, y in points],
            "hover": [describe(said, x, y) for x, y in points],
            "hover_only": True,
            "href": [project_url(case.project, "runs:run", run=entry.run.pk)] * len(points),
        }


def _say_by_when(name: str, seconds: float, share: float) -> str:
    return f"{name}: {100 * share:.0f} % by {human(seconds, 's')}"


def read_curves(name: str, entries: Sequence[Entry]) -> dict[UUID, Any]:
    """A curve of the outcomes by run."""
    rows = RunDocument.objects.filter(run__in=[entry.run.pk for entry in entries])
    return dict(rows.values_list("run", F(f"outcome__series__{name}")))


def _name(entry: Entry) -> str:
    rate = entry.parameters.get(serving.RATE)
    return entry.name if rate is None else f"{entry.name} at {rate:g}/s"
