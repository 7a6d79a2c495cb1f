"""The figures of a cluster plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from experiments.cluster.interface import ClusterPlan, Machines
from experiments.cluster.interface.check import TOLERANCE
from experiments.cluster.interface.log import LOST, MOVED, PREEMPTED
from experiments.cluster.simulator.fairness import finish_time_unfairness
from experiments.cluster.simulator.steps import Bools, step_function
from experiments.workloads.jobs import JobTrace
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats


@dataclass(frozen=True)
class Outcomes:
    """What came of jobs and executions, in columns.

    By job: first start and completion in s (NaN: never), when it completed or was refused (NaN: it was there
    to the end), seconds with devices, and whether it counts. By execution: job, start, end, devices held
    (parts added up), seconds of restarting, device-seconds lost, how it ended.
    """

    started: Floats
    ended: Floats
    left: Floats
    held: Floats
    counts: Bools
    job: Ints
    start: Floats
    end: Floats
    devices: Floats
    restarting: Floats
    lost: Floats
    busy: Floats
    ending: npt.NDArray[np.str_]

    @classmethod
    def of(cls, plan: ClusterPlan, trace: JobTrace) -> Outcomes:
        log, jobs = plan.executions, len(trace)
        columns, job = log.numbers, log.job
        start, end = columns["start"], columns["end"]
        ending = log.endings
        started, ended = np.full(jobs, np.inf), np.full(jobs, np.nan)
        np.minimum.at(started, job, start)
        started[np.isinf(started)] = np.nan
        done = ending == "completed"
        ended[job[done]] = end[done]
        counts = np.zeros(jobs, np.bool_)
        counts[slice(*(trace.window or (0, jobs)))] = True
        held = np.bincount(job, weights=end - start, minlength=jobs).astype(np.float64)
        parts = (columns["restarting"], columns["lost"], columns["busy"])
        return cls(
            started,
            ended,
            _departures(ended, plan, trace),
            held,
            counts,
            job,
            start,
            end,
            (log.size * log.share).astype(np.float64),
            *parts,
            ending,
        )

    @property
    def device_seconds(self) -> dict[str, float]:
        """Device-seconds held, of them those of restarts, of lost progress, idle in a gang, and useful."""
        held = (self.end - self.start) * self.devices
        restarting = self.restarting * self.devices
        made = held - restarting
        idle = float((made * (1 - self.busy)).sum())
        lost, restarts = float(self.lost.sum()), float(restarting.sum())
        return {
            "held": float(held.sum()),
            "restarting": restarts,
            "lost": lost,
            "idle": idle,
            "useful": float(made.sum()) - idle - lost,
        }


def _departures(ended: Floats, plan: ClusterPlan, trace: JobTrace) -> Floats:
    """When each job completed or was refused."""
    left, refused = ended.copy(), list(plan.rejected)
    last = trace.submit.copy()
    np.maximum.at(last, plan.executions.job, plan.executions.numbers["end"])
    left[refused] = [plan.refused_at.get(job, float(last[job])) for job in refused]
    return left


def figures(plan: ClusterPlan, trace: JobTrace, machines: Machines) -> dict[str, float]:
    """The metrics of ``plan``. Completion times are over completed jobs; percentiles interpolate linearly.

    ``utilization`` counts device time that made progress which was kept, ``gpu_allocation_ratio`` all device
    time held, both over the makespan (first submission to last completion). Where the trace names a window,
    figures of jobs are of the jobs in it.
    """
    outcomes = Outcomes.of(plan, trace)
    completed = ~np.isnan(outcomes.ended) & outcomes.counts
    counted = int(outcomes.counts.sum())
    rejected = sum(bool(outcomes.counts[job]) for job in plan.rejected)
    out = {
        "jobs": float(counted),
        "unfinished_jobs": float(counted - completed.sum()),
        "rejected_jobs": float(rejected),
        "admitted_fraction": 1 - rejected / counted,
        **_interruptions(plan, outcomes, machines),
        **_deadlines(outcomes, trace, plan.rejected),
        **_contention(trace, outcomes, machines),
    }
    if not completed.any():
        return {**out, **plan.figures}
    out |= _times(outcomes, trace, completed)
    makespan = float(np.nanmax(outcomes.ended) - trace.submit[0])
    out["makespan"] = makespan
    if makespan > 0:
        out |= _shares(plan, outcomes, machines, makespan)
    unfairness = finish_time_unfairness(outcomes.ended, outcomes.left, trace, machines.devices)[
        completed & (trace.service > 0)
    ]
    if len(unfairness):
        out["finish_time_fairness_max"] = float(unfairness.max())
        out["finish_time_fairness_p99"] = float(np.percentile(unfairness, 99))
        out["finish_time_fair_fraction"] = float((unfairness <= 1 + 1e-9).mean())
    return {**out, **plan.figures}


def _times(outcomes: Outcomes, trace: JobTrace, completed: Bools) -> dict[str, float]:
    jct = (outcomes.ended - trace.submit)[completed]
    waiting = (outcomes.ended - trace.submit - outcomes.held)[completed]
    delay = (outcomes.started - trace.submit)[outcomes.counts]
    return {
        "avg_jct": float(jct.mean()),
        **{f"p{name}_jct": float(np.percentile(jct, rank)) for name, rank in _PERCENTILES.items()},
        "avg_queueing_delay": float(np.nanmean(delay)),
        "avg_waiting_time": float(waiting.mean()),
    }


_PERCENTILES: Mapping[str, float] = {"50": 50, "90": 90, "99": 99, "999": 99.9}


def _interruptions(plan: ClusterPlan, outcomes: Outcomes, machines: Machines) -> dict[str, float]:
    """What was stopped, started again elsewhere or with more or less, and what that cost."""
    ending, seconds = outcomes.ending, outcomes.device_seconds
    resizes, migrations = _moves(plan, machines)
    going_on = _going_on(plan)
    out = {
        "preemptions": float((ending == PREEMPTED).sum() + (ending == MOVED).sum() - going_on),
        "restarts": float(len(outcomes.job) - len(np.unique(outcomes.job)) - going_on),
        "resizes": float(resizes),
        "migrations": float(migrations),
        "lost_gpu_seconds": seconds["lost"],
        "restart_gpu_seconds": seconds["restarting"],
        "idle_gpu_seconds": seconds["idle"],
    }
    if plan.down or (ending == LOST).any():
        out["node_failures"] = float(sum(until > since for _, since, until in plan.down))
    return out


def _going_on(plan: ClusterPlan) -> int:
    """Executions that only go on with another batch or share: at once, on the same devices, at no cost but
    what was left of the start.
    """
    log, numbers = plan.executions, plan.executions.numbers
    order = np.lexsort((numbers["start"], log.job))
    shape, before = log.shape[order][1:], log.shape[order][:-1]
    start, end, restarting = (numbers[name][order] for name in ("start", "end", "restarting"))
    same = (log.job[order][1:] == log.job[order][:-1]) & (shape != before) & (start[1:] == end[:-1])
    same &= (restarting[1:] == 0) | (restarting[:-1] >= end[:-1] - start[:-1])
    places = np.flatnonzero(same)
    return sum(log.shapes[shape[row]].devices == log.shapes[before[row]].devices for row in places)


def _moves(plan: ClusterPlan, machines: Machines) -> tuple[int, int]:
    """Executions that follow one of the same job with another number of devices; with as many elsewhere."""
    log = plan.executions
    order = np.lexsort((log.numbers["start"], log.job))
    job, shape, size = log.job[order], log.shape[order], log.size[order]
    again = np.flatnonzero((job[1:] == job[:-1]) & (shape[1:] != shape[:-1]))
    resized = size[again + 1] != size[again]
    same = again[~resized]
    nodes: dict[int, tuple[int, ...]] = {}
    for number in {*shape[same].tolist(), *shape[same + 1].tolist()}:
        devices = log.shapes[number].devices
        nodes[number] = tuple(node for node, _ in machines.by_node(devices))
    moved = sum(nodes[int(shape[row])] != nodes[int(shape[row + 1])] for row in same)
    return int(resized.sum()), moved


def _shares(plan: ClusterPlan, outcomes: Outcomes, machines: Machines, makespan: float) -> dict[str, float]:
    """What was used and held of what the cluster has over the makespan."""
    seconds, capacity = outcomes.device_seconds, machines.devices * makespan
    out = (
        {}
        if not capacity
        else {
            "utilization": seconds["useful"] / capacity,
            "gpu_allocation_ratio": seconds["held"] / capacity,
        }
    )
    held = (outcomes.end - outcomes.start)[:, None]
    log = plan.executions
    if any(gang.hosts for gang in log.shapes) and machines.knows_hosts:
        cpus = np.array([sum(host.cpus for host in gang.hosts) for gang in log.shapes])[log.shape]
        total = sum(node.cpus for node in machines if np.isfinite(node.cpus))
        out["cpu_utilization"] = float((cpus * held[:, 0]).sum() / (total * makespan)) if total else 0.0
    prices = np.array([machines[node].price for node in machines.node_of])
    if prices.any():
        hourly = np.array([prices[list(gang.devices)].sum() * gang.share for gang in log.shapes])[log.shape]
        out["cost"] = float((hourly * held[:, 0]).sum() / 3600)
    return out


def gpus_wanted(trace: JobTrace) -> Floats:
    """Return the GPUs that each job asks for, parts as parts."""
    return np.asarray(trace.gpus * np.asarray(trace.traits.get("gpu_share", 1.0)), np.float64)


def _contention(trace: JobTrace, outcomes: Outcomes, machines: Machines) -> dict[str, float]:
    """GPUs asked for by jobs that are there, over capacity: mean over that time, and largest."""
    if not machines.devices:
        return {}
    last = outcomes.end.max() if len(outcomes.end) else np.nan
    ends = np.where(np.isnan(outcomes.left), last, outcomes.left)
    ends = np.maximum(ends, trace.submit)
    times, levels = step_function(trace.submit, ends, gpus_wanted(trace))
    spans = np.diff(times)
    if not spans.sum():
        return {}
    mean = float((levels[:-1] * spans).sum() / spans.sum())
    return {
        "contention_mean": mean / machines.devices,
        "contention_max": float(levels.max()) / machines.devices,
    }


def _deadlines(outcomes: Outcomes, trace: JobTrace, rejected: tuple[int, ...]) -> dict[str, float]:
    """The share of jobs with a deadline that met it: of all, and of those that were not refused.

    Jobs without one, next to such, are best-effort jobs: how long they take is told apart.
    """
    has = ~np.isnan(trace.deadline) & outcomes.counts
    if not has.any():
        return {}
    met = (outcomes.ended <= trace.deadline + TOLERANCE)[has].sum()
    admitted = has.copy()
    admitted[list(rejected)] = False
    out = {"deadline_satisfaction": float(met / has.sum())}
    if admitted.any():
        out["deadline_admitted_satisfaction"] = float(met / admitted.sum())
    best_effort = np.isnan(trace.deadline) & outcomes.counts & ~np.isnan(outcomes.ended)
    if best_effort.any():
        out["best_effort_avg_jct"] = float((outcomes.ended - trace.submit)[best_effort].mean())
    return out
