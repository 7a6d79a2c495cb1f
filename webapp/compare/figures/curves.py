"""Curves of several runs over one another: how many are done by when, and what is kept at which rate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from django.db.models import F

from experiments.core.units import human
from webapp.compare.answers import cluster, serving
from webapp.compare.answers.case import Case, value
from webapp.compare.comparison import Entry
from webapp.compare.figures.marks import addresses, curve_look, figure_json
from webapp.navigation import project_url
from webapp.runs.models import RunDocument

#: Durations (s) that a logarithmic axis names.
DURATIONS = (
    *(1e-3, 1e-2, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600),
    *(6 * 3600, 86400, 7 * 86400, 30 * 86400, 120 * 86400, 365 * 86400),
)
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
    series = list(_curves(entries, name, case))
    if not series:
        return None
    ticks = duration_ticks([x for line in series for x in line["x"]])
    return figure_json(
        f"{title}{load}", "line", (across, "s"), (up, ""), log="x", series=series, x_ticks=ticks
    )


def duration_ticks(seconds: Sequence[float]) -> dict[str, list[Any]]:
    """Ticks at durations that people know."""
    shown = [one for one in DURATIONS if min(seconds) <= one <= max(seconds)]
    return {"values": shown, "labels": [human(one, "s") for one in shown]}


def _curves(entries: Sequence[Entry], name: str, case: Case) -> Iterator[dict[str, Any]]:
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
            "hover": [f"{said}: {100 * y:.0f} % by {human(x, 's')}" for x, y in points],
            "hover_only": True,
            "href": [project_url(case.project, "runs:run", run=entry.run.pk)] * len(points),
        }


def read_curves(name: str, entries: Sequence[Entry]) -> dict[UUID, Any]:
    """A curve of the outcomes by run."""
    rows = RunDocument.objects.filter(run__in=[entry.run.pk for entry in entries])
    return dict(rows.values_list("run", F(f"outcome__series__{name}")))


def _name(entry: Entry) -> str:
    rate = entry.parameters.get(serving.RATE)
    return entry.name if rate is None else f"{entry.name} at {rate:g}/s"


def attainment(case: Case) -> dict[str, Any] | None:
    """The share of requests within their objective against the rate, one line for each policy."""
    having = [entry for entry in case.having(serving.ATTAINED) if serving.RATE in entry.parameters]
    if len(serving.rates(case)) < 2 or not having:
        return None
    names = list(dict.fromkeys(entry.name for entry in having))
    series = [_line(index, [e for e in having if e.name == name], case) for index, name in enumerate(names)]
    kept = f"{100 * serving.KEPT:.0f} % of requests"
    rates = serving.rates(case)
    series.append(
        {"name": kept, "mode": "lines", "dash": "dot", "color": "ink-soft", "x": [rates[0], rates[-1]],
         "y": [serving.KEPT] * 2, "hover": [kept] * 2, "hover_only": True}
    )  # fmt: skip
    axes = (("requests a second", ""), ("share of requests within their objective", ""))
    return figure_json("Objective kept, by rate", "scatter", *axes, series=series, y_range=[0, 1.05])


def _line(index: int, entries: list[Entry], case: Case) -> dict[str, Any]:
    ordered = sorted(entries, key=lambda entry: float(entry.parameters[serving.RATE]))
    x = [float(entry.parameters[serving.RATE]) for entry in ordered]
    y = [value(entry, serving.ATTAINED) for entry in ordered]
    hover = [f"{_name(entry)}: {100 * share:.3g} %" for entry, share in zip(ordered, y, strict=True)]
    look = {"mode": "lines+markers", **curve_look(index), "hover_only": True}
    return {
        "name": ordered[0].name,
        **look,
        "x": x,
        "y": y,
        "hover": hover,
        "href": addresses(ordered, case.project),
    }
