"""The five laws of cluster policies, whoever wrote them: on jobs that come all at once, late, and larger than
a node.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

from experiments.cluster.experiment import plan_json
from experiments.cluster.interface import ClusterPlan, ClusterPolicy, Machines
from experiments.cluster.simulator import simulate
from experiments.core import jsonio, registry
from experiments.workloads.jobs import JobTrace
from tests.experiments.cluster.traces import faults, jobs

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
def planned(name: str, trace: str) -> ClusterPlan:
    return simulate(TRACES[trace], MACHINES, policy_named(name))


@every_policy
@every_trace
def test_its_plan_is_legal(name: str, trace: str) -> None:
    policy = policy_named(name)
    assert faults(planned(name, trace), TRACES[trace], MACHINES, rigid=policy.rigid) == []


@every_policy
@every_trace
def test_it_is_repeatable(name: str, trace: str) -> None:
    assert simulate(TRACES[trace], MACHINES, policy_named(name)) == planned(name, trace)


@every_policy
@every_trace
def test_its_plan_survives_json(name: str, trace: str) -> None:
    document = plan_json(planned(name, trace), TRACES[trace], MACHINES)
    assert jsonio.loads(jsonio.canonical(document), "plan") == document


@every_policy
def test_closed_form_on_the_smallest_case(name: str) -> None:
    """One job on an empty cluster starts when it is submitted and ends after its duration."""
    alone = jobs((3, 2, 10))
    (execution,) = simulate(alone, MACHINES, policy_named(name)).executions
    assert (execution.start, execution.end, execution.gang.size, execution.completed) == (3, 13, 2, True)


@every_policy
@every_trace
def test_never_better_than_the_bound(name: str, trace: str) -> None:
    """No job ends before its duration is over, and all of them not before the devices could have done the
    work.
    """
    rows, ends = (
        TRACES[trace],
        {execution.gang.job: execution.end for execution in planned(name, trace).executions},
    )
    for job, end in ends.items():
        assert end - rows.submit[job] >= rows.service[job] - 1e-9
    work = float((rows.service * rows.gpus)[list(ends)].sum())
    assert max(ends.values()) - float(np.min(rows.submit)) >= work / MACHINES.devices - 1e-9
