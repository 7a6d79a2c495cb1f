"""Schedulers next to one another: by load, by size of jobs, by how full the cluster was, and how fair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.core.units import human, significant
from webapp.compare.answers import cluster
from webapp.compare.answers.case import Case, value
from webapp.compare.answers.cluster import JCT, MAKESPAN, RATE
from webapp.compare.entries import Entry
from webapp.compare.figures.curves import duration_ticks, read_curves
from webapp.compare.figures.lines import RATES
from webapp.compare.figures.marks import addresses, figure_json
from webapp.compare.figures.pairs import Pair, is_wide

UTILIZATION = "utilization"
#: How unfair the worst jobs are treated, of which the first that runs report is drawn.
FAIRNESS = ("finish_time_fairness_p99", "finish_time_fairness_max")
#: Classes of sizes as outcomes name their curves.
SIZES = {"1_gpu": "1 GPU", "2_to_8_gpus": "2 to 8 GPUs", "over_8_gpus": "over 8 GPUs"}
#: Ticks in words are so many or more.
FEWEST_TICKS = 3
#: Schedulers that are drawn as bars, the soonest first.
MOST = 14


def by_load(case: Case) -> dict[str, Any] | None:
    """The average completion time against the rate of arrivals, one line for each scheduler."""
    entries = [entry for entry in cluster.ranking(case) if RATE in entry.parameters]
    if len(cluster.rates(case)) < 2 or not entries:
        return None
    by_name: dict[str, dict[float, Entry]] = {}
    for entry in entries:  # the soonest of those with other knobs
        by_name.setdefault(entry.name, {}).setdefault(float(entry.parameters[RATE]), entry)
    series = [RATES.line(index, [*found.values()], JCT, case) for index, found in enumerate(by_name.values())]
    times = [seconds for line in series for seconds in line["y"]]
    log = "".join(axis for axis, values in (("x", cluster.rates(case)), ("y", times)) if is_wide(values))
    axes = (("jobs submitted a second", ""), ("average job completion time", "s"))
    ticks: dict[str, Any] = {"x_ticks": _rate_ticks(cluster.rates(case))}
    durations = duration_ticks(times)
    if len(durations["values"]) >= FEWEST_TICKS:
        ticks["y_ticks"] = durations
    return figure_json("Completion time by load", "scatter", *axes, log=log, series=series, **ticks)


def _rate_ticks(rates: Sequence[float]) -> dict[str, list[Any]]:
    return {"values": [*rates], "labels": [significant(rate) for rate in rates]}


def by_size(case: Case) -> dict[str, Any] | None:
    """The median completion time of jobs of each size, of repeats that of the first run."""
    ranked, load = cluster.at_most_load(case)
    entries, series = ranked[:MOST], []
    names = [entry.name for entry in entries]
    for size, words in SIZES.items():
        found = read_curves(f"jct_distribution.{size}", entries)
        medians = [_median(found.get(entry.run.pk) or {}) for entry in entries]
        if any(medians):
            hover = [f"{name}, {words}: {human(y or 0, 's')}" for name, y in zip(names, medians, strict=True)]
            told = {"x": names, "y": medians, "hover": hover, "href": addresses(entries, case.project)}
            series.append({"name": words, "hover_only": True, **told})
    if not series:
        return None
    axes = (("", ""), ("median job completion time", "s"))
    return figure_json(f"Completion time by size of jobs{load}", "bar", *axes, series=series)


def _median(curve: dict[str, Any]) -> float | None:
    """Where half the jobs are done."""
    points = zip(curve.get("x") or (), curve.get("y") or (), strict=True)
    return next((x for x, y in points if y >= 0.5), None)


def by_utilization(case: Case) -> dict[str, Any] | None:
    """How much of the devices' time was used, the most first."""
    ranked, load = cluster.at_most_load(case)
    having = [entry for entry in ranked if UTILIZATION in entry.estimates]
    entries = sorted(having, key=lambda entry: -value(entry, UTILIZATION))[:MOST]
    if not entries:
        return None
    names = [entry.name for entry in entries]
    shares = [100 * value(entry, UTILIZATION) for entry in entries]
    hover = [f"{name}: {significant(share)} %" for name, share in zip(names, shares, strict=True)]
    bars = {"name": "used", "x": shares, "y": names, "hover": hover, "hover_only": True}
    axes = (("share of all devices' time until the last job ended (%)", ""), ("", ""))
    told = {**bars, "color": "plot-1", "href": addresses(entries, case.project)}
    title = f"Device utilization{load}"
    return figure_json(title, "rows", *axes, series=[told], lanes=names, x_range=[0, 100])


def by_fairness(case: Case) -> dict[str, Any] | None:
    """Makespan against finish-time fairness; those on the front are beaten by no other in both."""
    ranked, load = cluster.at_most_load(case)
    metric = next((name for name in FAIRNESS if case.having(MAKESPAN, name)), None)
    if metric is None:
        return None
    worst = "99th percentile" if metric == FAIRNESS[0] else "worst"
    pair = Pair(MAKESPAN, metric, ("makespan", "s"), (f"{worst} of JCT over its time on an equal share", ""))
    return pair.draw(case, ranked, f"Makespan against finish-time fairness{load}")
