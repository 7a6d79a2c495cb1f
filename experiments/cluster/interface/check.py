"""The one checker of cluster plans: the simulator asks it of each gang, contract tests and the run of the
whole log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from experiments.cluster.interface.allocation import ClusterPlan, Execution, Gang
from experiments.workloads.jobs import JobTrace

#: Complaints listed in full; the rest are counted.
LISTED = 20
TOLERANCE = 1e-6


def violations(
    plan: ClusterPlan, trace: JobTrace, capacity: Sequence[int], *, rigid: bool = True
) -> list[str]:
    """What is impossible about ``plan`` on nodes with ``capacity`` devices each; empty when nothing is.

    Every job completes exactly once or is reported as rejected or unfinished; nothing runs before it is
    submitted, twice at a time, or on devices that others hold; completed jobs made exactly their service in
    progress.
    """
    by_job: dict[int, list[Execution]] = {}
    for execution in plan.executions:
        by_job.setdefault(execution.gang.job, []).append(execution)
    found = [*_accounts(plan, trace), *_stays(by_job, trace, rigid), *_overloads(plan, capacity)]
    more = len(found) - LISTED
    return found if more <= 0 else [*found[:LISTED], f"and {more} more"]


def gang_fault(gang: Gang, wanted: int, *, rigid: bool) -> str:
    """What no cluster could carry out about ``gang``, whatever is free; empty when nothing is."""
    nodes = [node for node, _ in gang.devices]
    if not nodes:
        return "is started on 0 devices"
    if min(count for _, count in gang.devices) < 1:
        return f"is started on {gang.size} devices, some node's count below 1"
    if len(set(nodes)) < len(nodes):
        return "is started with one node named twice"
    if not 0 < gang.share <= 1:
        return f"is started with the share {gang.share:g} of its devices' time"
    if rigid and gang.size != wanted:
        return f"is started on {gang.size} GPUs and wants {wanted}"
    return ""


def _accounts(plan: ClusterPlan, trace: JobTrace) -> Iterator[str]:
    ended = Counter(execution.gang.job for execution in plan.executions if execution.completed)
    ended.update(plan.rejected)
    ended.update(plan.unfinished)
    for job, name in enumerate(trace.job):
        if ended[job] != 1:
            yield f"job {name} is completed, rejected or unfinished {ended[job]} times instead of once"


def _stays(by_job: dict[int, list[Execution]], trace: JobTrace, rigid: bool) -> Iterator[str]:
    for job, executions in sorted(by_job.items()):
        name, free_from = trace.job[job], float(trace.submit[job])
        for execution in sorted(executions, key=lambda execution: execution.start):
            if execution.start < free_from - TOLERANCE:
                yield f"job {name} starts at {execution.start:g} s, before {free_from:g} s"
            if rigid and execution.gang.size != trace.gpus[job]:
                yield f"job {name} runs on {execution.gang.size} GPUs and wants {trace.gpus[job]}"
            free_from = execution.end
        done, service = sum(execution.useful for execution in executions), float(trace.service[job])
        if rigid and executions[-1].completed and abs(done - service) > TOLERANCE * max(1.0, service):
            yield f"job {name} completes after {done:g} s of progress instead of {service:g} s"


def _overloads(plan: ClusterPlan, capacity: Sequence[int]) -> Iterator[str]:
    """Nodes that hand out more devices than they have, by a sweep over starts and ends (ends first)."""
    rows = [
        (node, time, sign * count * execution.gang.share)
        for execution in plan.executions
        for node, count in execution.gang.devices
        for time, sign in ((execution.start, 1), (execution.end, -1))
    ]
    if not rows:
        return
    node, time, change = np.array(rows).T
    order = np.lexsort((change, time, node))
    used = np.cumsum(change[order])
    limit = np.asarray(capacity)[node[order].astype(np.int64)]
    for row in np.flatnonzero(used > limit + TOLERANCE)[:LISTED]:
        which = int(node[order][row])
        yield (
            f"node {which} gives out {used[row]:g} devices at {time[order][row]:g} s and has "
            f"{capacity[which]}"
        )
