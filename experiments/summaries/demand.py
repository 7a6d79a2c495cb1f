"""What the jobs of a trace ask of a cluster, before any scheduler: GPUs wanted over time if nobody waited."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from experiments.summaries.drawing import MOST_POINTS
from experiments.summaries.job_groups import wanted_gpus
from experiments.workloads.jobs import JobTrace
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

#: Distinct levels of demand that are kept apart; above, levels are rounded up to multiples of a power of two.
MOST_LEVELS = 4000
#: Digits after the point of a sum of parts of GPUs.
ROUNDED = 6


def demand_of(trace: JobTrace) -> dict[str, Any]:
    """JSON: jobs, GPU seconds, the time of submissions, seconds at each level of demand, and the curve.

    Each job wants its GPUs from its submission on, for its service time. ``longest`` is, for each level, the
    longest time on end that at least so many GPUs were wanted, ``longest_from`` when that began.
    """
    trace = trace.timed()
    if not len(trace):
        return {}
    time, level = demand_curve(trace)
    levels = _rounded(level[:-1])
    kept, seconds = _levels(levels, np.diff(time))
    longest, since = _longest(time - trace.submit[0], levels)
    wanted = wanted_gpus(trace)
    work = wanted * trace.service
    return {
        "jobs": len(trace),
        "gpu_seconds": float(work.sum()),
        "submissions": float(trace.submit[-1] - trace.submit[0]),
        "span": float(time[-1] - time[0]),
        "peak": math.ceil(level.max()),
        "peak_at": float(time[np.argmax(level)] - trace.submit[0]),
        "gangs": np.unique(trace.gpus).tolist(),
        "jobs_by_gang": np.unique(trace.gpus, return_counts=True)[1].tolist(),
        "work_by_gang": _by_gang(trace.gpus, work).tolist(),
        "service": [float(value) for value in np.quantile(trace.service, (0.5, 0.9, 0.99))],
        "levels": kept.tolist(),
        "seconds": seconds.tolist(),
        "longest": longest.tolist(),
        "longest_from": since.tolist(),
        "curve": _draw(time - trace.submit[0], level),
    }


def demand_curve(trace: JobTrace) -> tuple[Floats, Floats]:
    """Moments, and the GPUs wanted from each to the next one; parts of GPUs add up."""
    moments = np.concatenate((trace.submit, trace.submit + trace.service))
    wanted = wanted_gpus(trace)
    time, place = np.unique(moments, return_inverse=True)
    changes = np.bincount(place, weights=np.concatenate((wanted, -wanted)), minlength=len(time))
    level: Floats = np.cumsum(changes).round(ROUNDED).astype(np.float64)
    return time, level


def _by_gang(gpus: Ints, work: Floats) -> Floats:
    distinct, place = np.unique(gpus, return_inverse=True)
    sums: Floats = np.bincount(place, weights=work, minlength=len(distinct)).astype(np.float64)
    return sums


def _rounded(level: Floats) -> Ints:
    """Demand in whole GPUs; in multiples of a power of two of them where it has too many levels."""
    size = 1
    while len(np.unique(-(-level // size))) > MOST_LEVELS:
        size *= 2
    return (-(-level // size) * size).astype(np.int64)


def _levels(levels: Ints, seconds: Floats) -> tuple[Ints, Floats]:
    """Distinct levels and how long demand was at each."""
    distinct, place = np.unique(levels, return_inverse=True)
    return distinct, np.bincount(place, weights=seconds, minlength=len(distinct)).astype(np.float64)


def _longest(time: Floats, levels: Ints) -> tuple[Floats, Floats]:
    """For each distinct level the longest stretch of at least it, and where that begins."""
    found: dict[int, tuple[float, float]] = {}
    open_: list[tuple[int, float]] = []
    for now, level in zip(time.tolist(), [*levels.tolist(), -1], strict=True):
        begin = now
        while open_ and open_[-1][0] > level:
            above, begin = open_.pop()
            found[above] = max(found.get(above, (0.0, 0.0)), (now - begin, begin))
        if not open_ or open_[-1][0] < level:
            open_.append((level, begin))
    best, rows = (0.0, 0.0), []
    for level in sorted(found, reverse=True):
        best = max(best, found[level])
        rows.append(best)
    both = np.array(rows[::-1]).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _draw(time: Floats, level: Floats) -> dict[str, Any]:
    """The curve in steps; where it has too many, the most and the least of equal stretches by turns."""
    if len(time) <= MOST_POINTS:
        return {"x": time.tolist(), "y": level.tolist(), "of": None}
    edges = np.linspace(time[0], time[-1], MOST_POINTS // 2 + 1)
    first = np.searchsorted(time, edges[:-1], side="right") - 1
    ends = np.append(first[1:], len(level) - 1)
    rows = [level[begin : end + 1] for begin, end in zip(first.tolist(), ends.tolist(), strict=True)]
    bounds = [value for row in rows for value in (float(row.max()), float(row.min()))]
    halves = np.repeat(edges[:-1], 2) + np.tile((0.0, (edges[1] - edges[0]) / 2), len(rows))
    return {"x": halves.tolist(), "y": bounds, "of": len(time)}
