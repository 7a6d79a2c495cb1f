"""What a page draws of a plan: how full each node was over time, and the lives of jobs told in whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from experiments.cluster.interface import ClusterPlan, ExecutionLog, Machines
from experiments.cluster.simulator.steps import means, step_function
from experiments.workloads.jobs import JobTrace
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

#: Executions that an outcome tells of.
MOST_EXECUTIONS = 4000
#: Of jobs that are not all told, so many are those that took longest.
SLOWEST = 100
#: Rows and columns of the picture of nodes; more nodes share a row, equally many in each.
MOST_ROWS, MOST_COLUMNS = 64, 240


def occupancy(plan: ClusterPlan, machines: Machines, origin: float) -> Mapping[str, Any] | None:
    """The share of each node's devices that was held, over equal stretches of time from ``origin`` (s).

    ``None`` of a plan without executions or time.
    """
    log = plan.executions
    start, end = log.numbers["start"], log.numbers["end"]
    last = float(end.max()) if len(log) else origin
    if last <= origin:
        return None
    together = -(-len(machines) // MOST_ROWS)
    edges = np.linspace(origin, last, MOST_COLUMNS + 1)
    rows = -(-len(machines) // together)
    execution, row, weight = _held_by_row(log, machines, together)
    if not len(row):
        return None
    held = np.zeros((rows, MOST_COLUMNS))
    order = np.argsort(row, kind="stable")
    for place in np.split(order, np.flatnonzero(np.diff(row[order])) + 1):
        taken = execution[place]
        held[row[place[0]]] = means(*step_function(start[taken], end[taken], weight[place]), edges)
    sizes = np.array([sum(machines.sizes[n : n + together]) for n in range(0, len(machines), together)])
    shares = held / np.maximum(1, sizes)[:, None]
    return {
        "rows": list(_names(machines, together)),
        "nodes_per_row": together,
        "start": 0.0,
        "step": float(edges[1] - edges[0]),
        "held": np.round(shares, 3).tolist(),
    }


def _held_by_row(log: ExecutionLog, machines: Machines, together: int) -> tuple[Ints, Ints, Floats]:
    """Executions by the rows whose devices they held: execution, row, devices."""
    parts = [
        [(node // together, count * gang.share) for node, count in machines.by_node(gang.devices)]
        for gang in log.shapes
    ]
    table = np.array([pair for part in parts for pair in part], np.float64).reshape(-1, 2)
    counts, shape = np.array([len(part) for part in parts], np.int64), log.shape
    begins, lengths = np.cumsum(counts) - counts, counts[shape]
    execution = np.repeat(np.arange(len(log)), lengths)
    within = np.arange(len(execution)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    row, weight = table[begins[shape][execution] + within].T
    return execution, row.astype(np.int64), weight


def _names(machines: Machines, together: int) -> Iterator[str]:
    for first in range(0, len(machines), together):
        last = min(first + together, len(machines)) - 1
        name = machines[first].name
        yield name if first == last else f"{name} to {machines[last].name}"


def told_jobs(plan: ClusterPlan, trace: JobTrace) -> tuple[Ints, str]:
    """Rows of the jobs of which every execution is told, ascending, and which these are in words.

    All of them where there are few executions; else those that took longest and, evenly, of the others.
    """
    counts = np.bincount(plan.executions.job, minlength=len(trace))
    if counts.sum() <= MOST_EXECUTIONS:
        return np.arange(len(trace)), "every job"
    ended = np.full(len(trace), np.inf)
    log = plan.executions
    completed = log.endings == "completed"
    ended[log.job[completed]] = log.numbers["end"][completed]
    slowest = np.argsort(trace.submit - ended, kind="stable")
    evenly = np.argsort(_spread(len(trace)), kind="stable")
    wanted = dict.fromkeys([*slowest[:SLOWEST].tolist(), *evenly.tolist()])
    told, room = [], MOST_EXECUTIONS
    for job in wanted:
        if counts[job] <= room:
            told.append(job)
            room -= int(counts[job])
        if room <= 0:
            break
    words = f"{len(told):,} of {len(trace):,} jobs, the slowest and of the others evenly, each whole"
    return np.array(sorted(told), np.int64), words


def _spread(count: int) -> Floats:
    """A place of each row in an order of which every beginning is spread evenly over all rows."""
    golden = (np.sqrt(5) - 1) / 2
    places: Floats = np.modf(np.arange(count) * golden)[0]
    return places


def lives(plan: ClusterPlan, trace: JobTrace, jobs: Ints) -> Mapping[str, Any]:
    """A row for each of ``jobs``: what it asked for, when it was there, and its stops."""
    log = plan.executions
    order = np.argsort(log.job, kind="stable")
    bounds = np.searchsorted(log.job[order], np.arange(len(trace) + 1))
    start, end, restarting = (log.numbers[name] for name in ("start", "end", "restarting"))
    rejected, unfinished = set(plan.rejected), set(plan.unfinished)
    rows = []
    for job in jobs.tolist():
        its = order[bounds[job] : bounds[job + 1]]
        state = "rejected" if job in rejected else "unfinished" if job in unfinished else "completed"
        times = (float(start[its].min()), float(end[its].max())) if len(its) else (None, None)
        row = [trace.job[job], float(trace.submit[job]), int(trace.gpus[job]), *times]
        rows.append([*row, len(its), float(restarting[its].sum()), state, trace.tenant[job] or ""])
    columns = "job submit gpus start end executions restarting state tenant"
    return {"columns": columns.split(), "rows": rows}


def executions_of(plan: ClusterPlan, trace: JobTrace, machines: Machines, jobs: Ints) -> list[list[Any]]:
    """Every execution of ``jobs``, in the order in which they ended."""
    told = np.isin(plan.executions.job, jobs)
    found = (plan.executions[row] for row in np.flatnonzero(told).tolist())
    return [
        [
            trace.job[one.gang.job],
            one.start,
            one.end,
            one.gang.size,
            [list(pair) for pair in machines.by_node(one.gang.devices)],
            one.ended,
            one.restarting,
        ]
        for one in found
    ]
