"""The five laws of cluster policies, whoever wrote them: on jobs that come all at once, late, and larger than
a node.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

from experiments.cluster.experiment import plan_json
from experiments.cluster.interface import (
    ClusterPlan,
    ClusterPolicy,
    Gang,
    Machines,
    Performance,
    violations,
)
from experiments.cluster.simulator import simulate
from experiments.core import jsonio, registry
from experiments.workloads.jobs import JobTrace
from tests.experiments.cluster.traces import jobs, suited

MACHINES = Machines.of_sizes([4, 2, 2])
TRACES: dict[str, JobTrace] = {
    "at once": jobs(*[(0, 1 + row % 4, 5 + 7 * (row % 5)) for row in range(20)]),
    "late": jobs(*[(9 * row, 1 + row % 3, 12) for row in range(12)]),
    "larger than a node": jobs((0, 6, 20), (1, 8, 3), (2, 1, 50), (2, 5, 8)),
}
every_policy = pytest.mark.parametrize("name", sorted(registry.family_policies("cluster")))
every_trace = pytest.mark.parametrize("trace", TRACES)


def policy_named(name: str) -> ClusterPolicy:
    policy = registry.create("cluster", name, registry.policy_class("cluster", name).quick)
    assert isinstance(policy, ClusterPolicy)
    return policy


@functools.cache
def case(name: str, trace: str) -> tuple[JobTrace, Performance]:
    return suited(TRACES[trace], policy_named(name), MACHINES)


@functools.cache
def planned(name: str, trace: str) -> ClusterPlan:
    rows, performance = case(name, trace)
    return simulate(rows, MACHINES, policy_named(name), performance)


@every_policy
@every_trace
def test_its_plan_is_legal(name: str, trace: str) -> None:
    policy, (rows, performance) = policy_named(name), case(name, trace)
    assert violations(planned(name, trace), rows, MACHINES, performance, rigid=policy.keeps_sizes) == []


@every_policy
@every_trace
def test_it_is_repeatable(name: str, trace: str) -> None:
    rows, performance = case(name, trace)
    assert simulate(rows, MACHINES, policy_named(name), performance) == planned(name, trace)


@every_policy
@every_trace
def test_its_plan_survives_json(name: str, trace: str) -> None:
    document = plan_json(planned(name, trace), TRACES[trace], MACHINES)
    assert jsonio.loads(jsonio.canonical(document), "plan") == document


@every_policy
def test_closed_form_on_the_smallest_case(name: str) -> None:
    """One job on an empty cluster starts when it is submitted and ends after its duration."""
    policy = policy_named(name)
    alone, performance = suited(jobs((3, 2, 10)), policy, MACHINES)
    (execution,) = simulate(alone, MACHINES, policy, performance).executions
    duration = performance.work(0) / performance.rate(0, execution.gang).speed
    assert (execution.start, execution.completed) == (3, True)
    assert execution.end == pytest.approx(3 + duration)
    if performance.name == "fixed":
        assert (execution.end, execution.gang.size) == (13, alone.gpus[0])


@every_policy
@every_trace
def test_never_better_than_the_bound(name: str, trace: str) -> None:
    """No job ends sooner than alone on its best allocation.

    Where work is in seconds of its GPUs, all of them end no sooner than all devices could have done the work.
    """
    rows, performance = case(name, trace)
    ends = {execution.gang.job: execution.end for execution in planned(name, trace).executions}
    for job, end in ends.items():
        assert end - rows.submit[job] >= performance.work(job) / fastest(job, performance) - 1e-9
    if performance.name == "fixed":
        work = float((rows.service * rows.gpus * rows.traits.get("gpu_share", 1.0))[list(ends)].sum())
        assert max(ends.values()) - float(np.min(rows.submit)) >= work / MACHINES.devices - 1e-9


def fastest(job: int, performance: Performance) -> float:
    """The highest speed on any number of devices of a node or of all nodes, whatever is done already."""
    gangs = [Gang(job, tuple(range(first, last))) for first in range(8) for last in range(first + 1, 9)]
    gangs = [gang for gang in gangs if gang.size <= performance.largest(job)]
    parts = [performance.work(job) * part for part in np.linspace(0, 0.999, 20)]
    return max(performance.rate(job, gang, (), done).speed for gang in gangs for done in parts)
