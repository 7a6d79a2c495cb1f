"""The curves of a cluster plan: devices held, jobs waiting and GPUs wanted over time, completion times."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from experiments.cluster.interface import ClusterPlan, Machines
from experiments.core.spec import Series
from experiments.workloads.jobs import JobTrace
from experiments.workloads.step import Floats

#: Points of a curve; a longer one is averaged over as many equal stretches of time.
MAX_POINTS = 1000
#: Points of a distribution.
QUANTILES = 200


def curves(plan: ClusterPlan, trace: JobTrace, machines: Machines) -> Mapping[str, Series]:
    """Return devices held, jobs waiting and GPUs wanted over time, and completion times.

    Times are in s from the first submission.
    """
    log = plan.executions
    if not len(log):
        return {}
    columns, completed = log.numbers, log.endings == "completed"
    start, end = columns["start"], columns["end"]
    ended = np.full(len(trace), np.nan)
    ended[log.job[completed]] = end[completed]
    origin = float(trace.submit[0])
    present = sample(*step_function(trace.submit, ended, np.ones(len(trace))), origin)
    held = sample(*step_function(start, end, log.size * log.share), origin)
    wanted = sample(*step_function(trace.submit, ended, trace.gpus.astype(np.float64)), origin)
    waiting = cumulate(*_waiting(trace.submit, start, end[~completed]))
    jct = np.sort((ended - trace.submit)[~np.isnan(ended)])
    quantiles = np.linspace(0, 1, min(len(jct), QUANTILES)) if len(jct) else np.empty(0)
    return {
        "utilization": Series("fraction", held[0].tolist(), (held[1] / max(1, machines.devices)).tolist()),
        "queue_length": Series("jobs", *_lists(sample(*waiting, origin))),
        "jobs_in_system": Series("jobs", *_lists(present)),
        "demand": Series("GPUs", *_lists(wanted)),
        "jct_distribution": Series(
            "fraction", np.quantile(jct, quantiles).tolist() if len(jct) else [], quantiles.tolist()
        ),
    }


def _lists(curve: tuple[Floats, Floats]) -> tuple[list[float], list[float]]:
    return curve[0].tolist(), curve[1].tolist()


def _waiting(submit: Floats, start: Floats, stopped: Floats) -> tuple[Floats, Floats]:
    """Changes of the number of jobs waiting: submitted or stopped, and not on devices."""
    times = np.concatenate((submit, stopped, start))
    change = np.concatenate((np.ones(len(submit) + len(stopped)), -np.ones(len(start))))
    return times, change


def step_function(start: Floats, end: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """The sum of ``weight`` over intervals, as a step function: level ``y[i]`` from ``x[i]`` on.

    What ends at NaN never ends.
    """
    closed = ~np.isnan(end)
    return cumulate(np.concatenate((start, end[closed])), np.concatenate((weight, -weight[closed])))


def cumulate(times: Floats, change: Floats) -> tuple[Floats, Floats]:
    """The step function that changes by ``change`` at ``times``."""
    moments, where = np.unique(times, return_inverse=True)
    return moments, np.cumsum(np.bincount(where, weights=change))


def sample(times: Floats, levels: Floats, origin: float) -> tuple[Floats, Floats]:
    """The step function itself, or its means over ``MAX_POINTS`` equal stretches where it has more points."""
    if len(times) <= MAX_POINTS:
        return times - origin, levels
    edges = np.linspace(times[0], times[-1], MAX_POINTS + 1)
    integral = np.concatenate(([0.0], np.cumsum(levels[:-1] * np.diff(times))))
    means: Floats = np.diff(np.interp(edges, times, integral)) / np.diff(edges)
    return edges[:-1] - origin, means
