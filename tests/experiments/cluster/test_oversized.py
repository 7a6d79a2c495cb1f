"""Jobs that never fit are refused before anything runs, or dropped, also by policies that resize jobs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.cluster.interface import ClusterPolicy, Machine, Machines
from experiments.cluster.simulator import simulate
from experiments.core import registry
from experiments.core.errors import Infeasible
from tests.experiments.cluster.traces import jobs


def policy(name: str, **knobs: str) -> ClusterPolicy:
    made = registry.create("cluster", name, knobs)
    assert isinstance(made, ClusterPolicy)
    return made


@pytest.mark.parametrize("name", ["themis", "faabric-elastic"])
def test_who_resizes_jobs_gives_each_gpu_its_processors(name: str) -> None:
    """Nodes of two GPUs and four processors: four GPUs with two each fit, two with six each never do."""
    machines = Machines([Machine(f"node {place}", 2, "a", cpus=4.0) for place in range(2)])
    trace = replace(jobs((0, 4, 10), (0, 2, 10)), traits={"cpu": np.array([8.0, 12.0])})
    with pytest.raises(Infeasible, match="no node has them: the largest has 4 processors"):
        simulate(trace, machines, policy(name))
    plan = simulate(trace, machines, policy(name, oversized="drop"))
    assert (plan.rejected, plan.unfinished) == ((1,), ())
    first = next(one for one in plan.executions if one.gang.job == 0)
    assert first.gang.size == 4
    assert [(host.node, host.cpus) for host in first.gang.hosts] == [(0, 4.0), (1, 4.0)]
