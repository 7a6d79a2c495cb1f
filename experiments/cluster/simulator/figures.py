"""The figures and curves of a cluster plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from experiments.cluster.interface import ClusterPlan
from experiments.core.spec import Series
from experiments.workloads.jobs import JobTrace
from experiments.workloads.step import Floats

#: Points of a curve; a longer one is averaged over as many equal stretches of time.
MAX_POINTS = 1000


@dataclass(frozen=True)
class _Outcomes:
    """By job: first start and completion in s (NaN: never). By execution: start, end, devices held, useful
    seconds.
    """

    started: Floats
    ended: Floats
    start: Floats
    end: Floats
    held: Floats
    useful: Floats

    @classmethod
    def of(cls, plan: ClusterPlan, jobs: int) -> _Outcomes:
        started, ended = np.full(jobs, np.inf), np.full(jobs, np.nan)
        for execution in plan.executions:
            started[execution.gang.job] = min(started[execution.gang.job], execution.start)
            if execution.completed:
                ended[execution.gang.job] = execution.end
        started[np.isinf(started)] = np.nan
        columns = np.array([(s.start, s.end, s.gang.size * s.gang.share, s.useful) for s in plan.executions])
        start, end, held, useful = columns.reshape(-1, 4).T
        return cls(started, ended, start, end, held, useful)


def figures(plan: ClusterPlan, trace: JobTrace, devices: int) -> dict[str, float]:
    """The metrics of ``plan``. Completion times are over completed jobs; percentiles interpolate linearly.

    ``utilization`` counts device time that made progress, ``gpu_allocation_ratio`` all device time held, both
    over the makespan (first submission to last completion).
    """
    outcomes = _Outcomes.of(plan, len(trace))
    completed = ~np.isnan(outcomes.ended)
    out = {
        "jobs": float(len(trace)),
        "unfinished_jobs": float(len(trace) - completed.sum()),
        "preemptions": float(sum(not execution.completed for execution in plan.executions)),
        **_deadlines(outcomes, trace, plan.rejected),
    }
    if not completed.any():
        return out
    jct = (outcomes.ended - trace.submit)[completed]
    makespan = float(np.nanmax(outcomes.ended) - trace.submit[0])
    out |= {
        "avg_jct": float(jct.mean()),
        "p50_jct": float(np.percentile(jct, 50)),
        "p99_jct": float(np.percentile(jct, 99)),
        "makespan": makespan,
        "avg_queueing_delay": float(np.nanmean(outcomes.started - trace.submit)),
    }
    if makespan > 0:
        sizes = np.array([execution.gang.size for execution in plan.executions])
        out["utilization"] = float((outcomes.useful * sizes).sum() / (devices * makespan))
        held = ((outcomes.end - outcomes.start) * outcomes.held).sum()
        out["gpu_allocation_ratio"] = float(held / (devices * makespan))
    unfairness = finish_time_unfairness(outcomes.ended, trace, devices)
    if len(unfairness):
        out["finish_time_fairness_max"] = float(unfairness.max())
    return out


def _deadlines(outcomes: _Outcomes, trace: JobTrace, rejected: Iterable[int]) -> dict[str, float]:
    """The share of jobs with a deadline that met it: of all, and of those that were not refused."""
    has = ~np.isnan(trace.deadline)
    if not has.any():
        return {}
    met = (outcomes.ended <= trace.deadline)[has].sum()
    admitted = has.copy()
    admitted[list(rejected)] = False
    out = {"deadline_satisfaction": float(met / has.sum())}
    if admitted.any():
        out["deadline_admitted_satisfaction"] = float(met / admitted.sum())
    return out


def finish_time_unfairness(ended: Floats, trace: JobTrace, devices: int) -> Floats:
    """Finish-time fairness of each completed job, rho = JCT / isolated JCT (Themis, NSDI'20, section 3.1).

    Isolated: alone on a 1/n share of the devices, n the mean number of jobs in the system while this one was,
    and progress in proportion to the devices when the share is smaller than the gang.
    """
    rows = np.flatnonzero(~np.isnan(ended) & (trace.service > 0))
    if not len(rows):
        return np.empty(0)
    times, levels = _steps(trace.submit, ended, np.ones(len(trace)))
    integral = np.concatenate(([0.0], np.cumsum(levels[:-1] * np.diff(times))))
    jct = (ended - trace.submit)[rows]
    jobs_present = np.interp(ended[rows], times, integral) - np.interp(trace.submit[rows], times, integral)
    share = devices / np.maximum(1.0, jobs_present / jct)
    isolated = trace.service[rows] * np.maximum(1.0, trace.gpus[rows] / share)
    unfairness: Floats = jct / isolated
    return unfairness


def curves(plan: ClusterPlan, trace: JobTrace, devices: int) -> Mapping[str, Series]:
    """Return devices held, jobs waiting and GPUs wanted over time, and completion times.

    Times are in s from the first submission.
    """
    outcomes = _Outcomes.of(plan, len(trace))
    if not len(outcomes.start):
        return {}
    origin = float(trace.submit[0])
    present = _sample(*_steps(trace.submit, outcomes.ended, np.ones(len(trace))), origin)
    held = _sample(*_steps(outcomes.start, outcomes.end, outcomes.held), origin)
    wanted = _sample(*_steps(trace.submit, outcomes.ended, trace.gpus.astype(np.float64)), origin)
    waiting = _waiting(plan, trace)
    jct = np.sort((outcomes.ended - trace.submit)[~np.isnan(outcomes.ended)])
    quantiles = np.linspace(0, 1, min(len(jct), 200)) if len(jct) else np.empty(0)
    return {
        "utilization": Series("fraction", held[0].tolist(), (held[1] / devices).tolist()),
        "queue_length": Series("jobs", *_lists(_sample(*waiting, origin))),
        "jobs_in_system": Series("jobs", *_lists(present)),
        "demand": Series("GPUs", *_lists(wanted)),
        "jct_distribution": Series(
            "fraction", np.quantile(jct, quantiles).tolist() if len(jct) else [], quantiles.tolist()
        ),
    }


def _lists(curve: tuple[Floats, Floats]) -> tuple[list[float], list[float]]:
    return curve[0].tolist(), curve[1].tolist()


def _waiting(plan: ClusterPlan, trace: JobTrace) -> tuple[Floats, Floats]:
    """Jobs waiting over time: submitted or preempted, and not on devices."""
    begins = [
        *trace.submit.tolist(),
        *(execution.end for execution in plan.executions if not execution.completed),
    ]
    ends = [execution.start for execution in plan.executions]
    times = np.array([*begins, *ends])
    change = np.array([1.0] * len(begins) + [-1.0] * len(ends))
    return _cumulate(times, change)


def _steps(start: Floats, end: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """The sum of ``weight`` over intervals, as a step function: level ``y[i]`` from ``x[i]`` on. NaN ends
    never end.
    """
    closed = ~np.isnan(end)
    return _cumulate(np.concatenate((start, end[closed])), np.concatenate((weight, -weight[closed])))


def _cumulate(times: Floats, change: Floats) -> tuple[Floats, Floats]:
    moments, where = np.unique(times, return_inverse=True)
    return moments, np.cumsum(np.bincount(where, weights=change))


def _sample(times: Floats, levels: Floats, origin: float) -> tuple[Floats, Floats]:
    """The step function itself, or its means over ``MAX_POINTS`` equal stretches where it has more points."""
    if len(times) <= MAX_POINTS:
        return times - origin, levels
    edges = np.linspace(times[0], times[-1], MAX_POINTS + 1)
    integral = np.concatenate(([0.0], np.cumsum(levels[:-1] * np.diff(times))))
    means: Floats = np.diff(np.interp(edges, times, integral)) / np.diff(edges)
    return edges[:-1] - origin, means
