"""The one checker of cluster plans: the simulator asks it of each gang, contract tests and the run of the
whole log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from experiments.cluster.interface.allocation import Gang
from experiments.cluster.interface.log import COMPLETED, ClusterPlan, ExecutionLog
from experiments.cluster.interface.machines import Machines
from experiments.cluster.interface.performance import Performance
from experiments.workloads.jobs import JobTrace
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

#: The checks, by the names under which a published simulator may ask to be let off.
ACCOUNTS, ORDER, SIZES, WORK = "accounts", "order", "sizes", "work"
DEVICES, HOSTS, OUTAGES = "devices", "hosts", "outages"
#: Complaints listed in full; the rest are counted.
LISTED = 20
TOLERANCE = 1e-6


def violations(
    plan: ClusterPlan,
    trace: JobTrace,
    machines: Machines,
    performance: Performance,
    *,
    rigid: bool = True,
) -> list[str]:
    """What is impossible about ``plan`` on ``machines``; empty when nothing is. Quirks are let pass.

    Every job completes exactly once or is reported as rejected or unfinished; nothing runs before it is
    submitted, twice at a time, or on what others hold or is out of order; completed jobs did exactly their
    work.
    """
    log = plan.executions
    checks: Mapping[str, Iterator[str]] = {
        ACCOUNTS: _accounts(plan, trace),
        ORDER: _orders(log, trace),
        SIZES: _sizes(log, trace) if rigid else iter(()),
        WORK: _works(log, trace, performance),
        DEVICES: _overloads(log, machines),
        HOSTS: _host_overloads(log, machines),
        OUTAGES: _outages(plan, machines),
    }
    found = [text for name, texts in checks.items() if name not in plan.quirks for text in texts]
    more = len(found) - LISTED
    return found if more <= 0 else [*found[:LISTED], f"and {more} more"]


def gang_fault(gang: Gang, wanted: int, *, rigid: bool) -> str:
    """What no cluster could carry out about ``gang``, whatever is free; empty when nothing is."""
    if not gang.devices and not gang.hosts:
        return "is started on nothing"
    if any(gang.devices[place] >= gang.devices[place + 1] for place in range(gang.size - 1)):
        return "is started on devices that are not in ascending order, each once"
    if not set(gang.readying) <= set(gang.devices):
        return "is made ready on devices that it does not have"
    if not 0 < gang.share <= 1:
        return f"is started with the share {gang.share:g} of its devices' time"
    if not 0 < gang.memory <= 1:
        return f"is started with the share {gang.memory:g} of its devices' memory"
    if rigid and gang.size != wanted:
        return f"is started on {gang.size} GPUs and wants {wanted}"
    return ""


def _accounts(plan: ClusterPlan, trace: JobTrace) -> Iterator[str]:
    log = plan.executions
    ended = Counter(log.job[log.endings == COMPLETED].tolist())
    ended.update(plan.rejected)
    ended.update(plan.unfinished)
    for job, name in enumerate(trace.job):
        if ended[job] != 1:
            yield f"job {name} is completed, rejected or unfinished {ended[job]} times instead of once"


def _orders(log: ExecutionLog, trace: JobTrace) -> Iterator[str]:
    """Executions of a job before it is submitted or before the last one ended."""
    job, numbers = log.job, log.numbers
    order = np.lexsort((numbers["start"], job))
    job, start, end = job[order], numbers["start"][order], numbers["end"][order]
    same = np.concatenate(([False], job[1:] == job[:-1]))[: len(job)]
    free = np.where(same, np.concatenate(([0.0], end[:-1]))[: len(job)], trace.submit[job])
    for row in np.flatnonzero(start < free - TOLERANCE)[: LISTED + 1]:
        yield f"job {trace.job[job[row]]} starts at {start[row]:g} s, before {free[row]:g} s"


def _sizes(log: ExecutionLog, trace: JobTrace) -> Iterator[str]:
    size, wanted = log.size, trace.gpus[log.job]
    for row in np.flatnonzero(size != wanted)[: LISTED + 1]:
        yield f"job {trace.job[log.job[row]]} runs on {size[row]} GPUs and wants {wanted[row]}"


def _works(log: ExecutionLog, trace: JobTrace, performance: Performance) -> Iterator[str]:
    """Completed jobs that did less than their work, or more."""
    done = np.bincount(log.job, weights=log.numbers["work"], minlength=len(trace))
    unit = performance.unit
    for job in np.unique(log.job[log.endings == COMPLETED]).tolist():
        work = performance.work(job)
        if abs(done[job] - work) > TOLERANCE * max(1.0, work):
            progress = f"{done[job]:g} {unit} of progress instead of {work:g} {unit}"
            yield f"job {trace.job[job]} completes after {progress}"


def _overloads(log: ExecutionLog, machines: Machines) -> Iterator[str]:
    """Devices of which more is given out than there is, by a sweep over starts and ends."""
    start, end = log.numbers["start"], log.numbers["end"]
    rows, devices = _expand(log, [gang.devices for gang in log.shapes])
    for what, shares in (("", log.share), (" of the memory", _memory(log))):
        for device, used, time in _exceed(devices, start[rows], end[rows], shares[rows], 1.0):
            node = machines.node_of[device]
            where = f"device {device - machines.first[node]} of {machines[node].name}"
            yield f"{where} is given out {used:g} times{what} at {time:g} s"


def _host_overloads(log: ExecutionLog, machines: Machines) -> Iterator[str]:
    """Hosts that give out more processors or memory than they have."""
    if not any(gang.hosts for gang in log.shapes):
        return
    start, end = log.numbers["start"], log.numbers["end"]
    rows, nodes = _expand(log, [[host.node for host in gang.hosts] for gang in log.shapes])
    for what in ("cpus", "memory"):
        _, amounts = _expand(log, [[getattr(host, what) for host in gang.hosts] for gang in log.shapes])
        limits = np.array([getattr(node, what) for node in machines])
        share = amounts / np.where(np.isfinite(limits), limits, 1e300)[nodes]
        for node, used, time in _exceed(nodes, start[rows], end[rows], share, 1.0):
            given = f"{used * limits[node]:g} {what} at {time:g} s and has {limits[node]:g}"
            yield f"{machines[node].name} gives out {given}"


def _memory(log: ExecutionLog) -> Floats:
    column: Floats = np.array([gang.memory for gang in log.shapes], np.float64)[log.shape]
    return column


def _expand(log: ExecutionLog, entries: list[Any]) -> tuple[Ints, Any]:
    """A row for each entry of each execution's gang: the execution's place, and the entry."""
    counts = np.array([len(entry) for entry in entries], np.int64)
    if not len(log) or not counts.sum():
        return np.empty(0, np.int64), np.empty(0, np.int64)
    begins = np.concatenate(([0], np.cumsum(counts)))
    values = np.array([value for entry in entries for value in entry])
    lengths = counts[log.shape]
    rows = np.repeat(np.arange(len(log)), lengths)
    ends = np.cumsum(lengths)
    within = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)
    return rows, values[begins[log.shape][rows] + within]


def _exceed(
    key: Ints, start: Floats, end: Floats, amount: Floats, limit: float
) -> Iterator[tuple[int, float, float]]:
    """Keys of which more than ``limit`` is given out at a time, ends first; the amount and the time."""
    if not len(key):
        return
    who, time = np.concatenate((key, key)), np.concatenate((start, end))
    change = np.concatenate((amount, -amount))
    order = np.lexsort((change, time, who))
    used = np.cumsum(change[order])
    for row in np.flatnonzero(used > limit + TOLERANCE)[: LISTED + 1]:
        yield int(who[order][row]), float(used[row]), float(time[order][row])


def _outages(plan: ClusterPlan, machines: Machines) -> Iterator[str]:
    """What runs on a node while it is down."""
    if not plan.down:
        return
    for execution in plan.executions:
        nodes = {node for node, _ in machines.by_node(execution.gang.devices)}
        for node, since, until in plan.down:
            if node in nodes and execution.start < until - TOLERANCE and execution.end > since + TOLERANCE:
                yield f"job {execution.gang.job} runs on {machines[node].name}, which is down at {since:g} s"
