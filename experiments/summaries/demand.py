"""What the jobs of a trace ask of a cluster, before any scheduler: GPUs wanted over time if nobody waited."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.summaries.drawing import MOST_POINTS
from experiments.workloads.jobs import JobTrace
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

#: Distinct levels of demand that are kept apart; above, levels are rounded up to multiples of a power of two.
MOST_LEVELS = 4000


def demand_of(trace: JobTrace) -> dict[str, Any]:
    """JSON: jobs, GPU seconds, the time of submissions, seconds at each level of demand, and the curve.

    Each job wants its GPUs from its submission on, for its service time.
    """
    trace = trace.timed()
    if not len(trace):
        return {}
    time, level = demand_curve(trace)
    kept, seconds = _levels(level[:-1], np.diff(time))
    work = trace.gpus * trace.service
    return {
        "jobs": len(trace),
        "gpu_seconds": float(work.sum()),
        "submissions": float(trace.submit[-1] - trace.submit[0]),
        "span": float(time[-1] - time[0]),
        "peak": int(level.max()),
        "peak_at": float(time[np.argmax(level)] - trace.submit[0]),
        "gangs": np.unique(trace.gpus).tolist(),
        "jobs_by_gang": np.unique(trace.gpus, return_counts=True)[1].tolist(),
        "work_by_gang": _by_gang(trace.gpus, work).tolist(),
        "service": [float(value) for value in np.quantile(trace.service, (0.5, 0.9, 0.99))],
        "levels": kept.tolist(),
        "seconds": seconds.tolist(),
        "curve": _draw(time - trace.submit[0], level),
    }


def demand_curve(trace: JobTrace) -> tuple[Floats, Ints]:
    """Moments, and the GPUs wanted from each to the next one."""
    moments = np.concatenate((trace.submit, trace.submit + trace.service))
    change = np.concatenate((trace.gpus, -trace.gpus))
    time, place = np.unique(moments, return_inverse=True)
    level = np.cumsum(np.bincount(place, weights=change, minlength=len(time)))
    return time, np.rint(level).astype(np.int64)


def _by_gang(gpus: Ints, work: Floats) -> Floats:
    distinct, place = np.unique(gpus, return_inverse=True)
    sums: Floats = np.bincount(place, weights=work, minlength=len(distinct)).astype(np.float64)
    return sums


def _levels(level: Ints, seconds: Floats) -> tuple[Ints, Floats]:
    """Distinct levels and how long demand was at each."""
    size = 1
    while len(np.unique(-(-level // size))) > MOST_LEVELS:
        size *= 2
    distinct, place = np.unique(-(-level // size) * size, return_inverse=True)
    return distinct, np.bincount(place, weights=seconds, minlength=len(distinct)).astype(np.float64)


def _draw(time: Floats, level: Ints) -> dict[str, Any]:
    """The curve in steps; where it has too many, the most and the least of equal stretches by turns."""
    if len(time) <= MOST_POINTS:
        return {"x": time.tolist(), "y": level.tolist(), "of": None}
    edges = np.linspace(time[0], time[-1], MOST_POINTS // 2 + 1)
    first = np.searchsorted(time, edges[:-1], side="right") - 1
    ends = np.append(first[1:], len(level) - 1)
    rows = [level[begin : end + 1] for begin, end in zip(first.tolist(), ends.tolist(), strict=True)]
    bounds = [value for row in rows for value in (int(row.max()), int(row.min()))]
    halves = np.repeat(edges[:-1], 2) + np.tile((0.0, (edges[1] - edges[0]) / 2), len(rows))
    return {"x": halves.tolist(), "y": bounds, "of": len(time)}
