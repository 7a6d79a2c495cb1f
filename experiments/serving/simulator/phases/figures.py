"""The figures and curves of a run on several instances, besides those of every serving run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from experiments.core.spec import Series
from experiments.serving.interface.phases import PhasePlan
from experiments.serving.simulator.curves import curves
from experiments.serving.simulator.figures import figures
from experiments.serving.simulator.request_times import NO_OBJECTIVE, LatencyObjective
from experiments.workloads.requests import RequestTrace

#: Points of a curve over time.
MAX_POINTS = 400


def phase_figures(plan: PhasePlan, trace: RequestTrace, objective: LatencyObjective) -> dict[str, float]:
    """Return the metrics of ``plan``; use of memory is over time and all instances."""
    found = figures(plan.serving, trace, objective)
    found |= {
        "preempted_requests": float(plan.preempted),
        "preemptions": float(plan.preemptions),
        "recomputed_tokens": float(plan.recomputed),
        "extrapolated_steps": float(plan.extrapolated),
    }
    if plan.passes:
        sizes = np.array([(row.requests, row.steps) for row in plan.serving.iterations], np.float64)
        found["batch_size_mean"] = float(np.average(sizes[:, 0], weights=sizes[:, 1]))
    if plan.copies:
        found["transfer_time"] = float(np.mean([copy.end - copy.start for copy in plan.copies]))
        found["transfer_wait"] = float(np.mean([copy.start - copy.asked for copy in plan.copies]))
    return found


def phase_curves(
    plan: PhasePlan, trace: RequestTrace, objective: LatencyObjective = NO_OBJECTIVE
) -> Mapping[str, Series]:
    """Return the curves of every serving run, and of each instance the share of time that it works."""
    found = dict(curves(plan.serving, trace, objective))
    found.pop("batch_size", None)
    if not plan.passes:
        return found
    grid = np.linspace(
        min(row.start for row in plan.passes), max(row.end for row in plan.passes), MAX_POINTS + 1
    )
    for place, instance in enumerate(plan.instances):
        rows = [(row.start, row.free) for row in plan.passes if row.instance == place]
        busy = _busy_shares(np.array(rows).reshape(-1, 2), grid)
        name = f"busy.{instance.role} {place}"
        found[name] = Series("fraction", grid[:-1].tolist(), busy.tolist())
    return found


def _busy_shares(spans: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """The share of each stretch of ``grid`` that lies within the ascending, disjoint ``spans``."""
    if not len(spans):
        return np.zeros(len(grid) - 1)
    start, end = spans.T
    before = np.concatenate(([0.0], np.cumsum(end - start)))
    place = np.searchsorted(start, grid, side="right")
    inside = np.where(place > 0, np.minimum(grid, end[place - 1]) - start[place - 1], 0.0)
    done = before[np.maximum(place - 1, 0)] + np.maximum(inside, 0.0)
    shares: np.ndarray = np.diff(done) / np.diff(grid)
    return shares
