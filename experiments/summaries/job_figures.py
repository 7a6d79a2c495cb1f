"""Figures of a job trace, of what it tells: arrivals, sizes, durations, tenants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.core.units import DAY, HOUR, MINUTE
from experiments.summaries.drawing import BINS, plot, points
from experiments.summaries.job_groups import wanted_gpus
from experiments.workloads.jobs import JobTrace

#: Arrivals in more stretches than that are a line, whose points are thinned by what can be seen.
MOST_BARS = 120
#: Classes of sizes that durations are told apart by: (name, the most GPUs).
CLASSES = (("up to 1 GPU", 1.0), ("2 to 8 GPUs", 8.0), ("over 8 GPUs", np.inf))
NAME_LENGTH = 24
UNITS = ((DAY, "day"), (HOUR, "hour"), (MINUTE, "minute"))


def plots_of_jobs(trace: JobTrace, groups: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The figures of ``trace``, whose ``groups_of`` these are."""
    return list(_plots(trace, groups)) if groups else []


def _plots(trace: JobTrace, groups: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if len(groups["arrivals"]["jobs"]) > 1:
        yield _arrivals(groups["arrivals"])
    if groups["day"]:
        across = "hour, of days that begin with the first submission"
        hours = points("jobs", np.arange(24), groups["day"])
        yield plot("Jobs submitted an hour, by hour of the day", "bar", across, "jobs an hour", [hours])
    yield _shares("GPUs that a job asks for", groups["sizes"])
    if (trace.service > 0).any():
        yield _durations(trace)
    if len(groups["owners"]) > 1:
        yield _shares(f"By {groups['owner']}", groups["owners"])


def _arrivals(told: Mapping[str, Any]) -> dict[str, Any]:
    counts, step = told["jobs"], told["step"]
    title, across = f"Jobs submitted, by {name_step(step)}", "since the first submission (s)"
    if len(counts) <= MOST_BARS:
        middles = (np.arange(len(counts)) + 0.5) * step
        return plot(title, "bar", across, "jobs", [points("jobs", middles, counts)])
    edges = np.arange(len(counts) + 1) * step
    line = {**points("jobs", edges, [*counts, counts[-1]]), "shape": "hv"}
    return plot(title, "line", across, "jobs", [line])


def name_step(step: float) -> str:
    """``hour``, ``3 hours``, ``day``, ``15 minutes``."""
    size, name = next(unit for unit in UNITS if step >= unit[0])
    return name if step == size else f"{step / size:g} {name}s"


def _shares(title: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Each row's part of all jobs and, where durations are told, of the GPU time."""
    names = [_shorten(row["name"]) for row in rows]
    series = [_part("of jobs", names, [row["jobs"] for row in rows])]
    work = [row["gpu_seconds"] for row in rows]
    if None not in work and sum(work):
        series.append(_part("of GPU time", names, work))
    return plot(title, "bar", "", "share (fraction)", series)


def _part(name: str, names: Sequence[str], values: Sequence[float]) -> dict[str, Any]:
    whole = sum(values)
    return points(name, names, [value / whole for value in values])


def _shorten(name: str) -> str:
    return name if len(name) <= NAME_LENGTH else f"{name[: NAME_LENGTH - 1]}…"


def _durations(trace: JobTrace) -> dict[str, Any]:
    """Durations on a logarithmic axis, one size of jobs on another; jobs of no time have no place there."""
    there = trace.service > 0
    seconds, wanted = trace.service[there], wanted_gpus(trace)[there]
    low, high = float(seconds.min()), float(seconds.max())
    edges = np.geomspace(low, max(high, low * 1.01), BINS + 1)
    edges[0], edges[-1] = low, max(high, edges[-1])
    series, below = [], -1.0
    for name, most in CLASSES:
        chosen = (wanted > below) & (wanted <= most)
        if chosen.any():
            counts, _ = np.histogram(seconds[chosen], edges)
            series.append(points(name, np.sqrt(edges[:-1] * edges[1:]), counts))
        below = most
    return plot("Durations", "bar", "duration (s)", "jobs", series, log="x", stack=True)
