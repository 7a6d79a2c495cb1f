"""Jobs that never fit are refused before anything runs, or dropped; jobs without GPUs run or are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.cluster.experiment.knowledge import refuse_unknown
from experiments.cluster.interface import ClusterPolicy, Machine, Machines
from experiments.cluster.planning.performance import performance_of
from experiments.cluster.simulator import simulate
from experiments.core import registry
from experiments.core.errors import BadInput, Infeasible
from tests.experiments.cluster.traces import jobs, suited


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


PLAIN = sorted(
    name for name in registry.family_policies("cluster") if not registry.policy_class("cluster", name).models
)


@pytest.mark.parametrize("name", PLAIN)
def test_jobs_without_gpus_run_on_processors_or_are_refused_before_anything_runs(name: str) -> None:
    """Three jobs on a node of two GPUs and four processors; one wants four processors and nothing else."""
    made = policy(name)
    machines = Machines([Machine("node", 2, "a", cpus=4.0)])
    trace, _ = suited(jobs((0, 1, 10), (1, 0, 10), (30, 1, 10)), made, machines)
    trace = replace(
        trace, gpus=np.array([1, 0, 1]), traits={**trace.traits, "cpu": np.array([1.0, 3.0, 1.0])}
    )
    performance = performance_of(trace, machines)
    if made.gpus_only:
        with pytest.raises(BadInput, match=f"has 1 jobs without GPUs, of 3, and {name} knows none"):
            refuse_unknown(made, trace, performance, {})
        assert type(made).lacks(trace.told()) == "knows no jobs without GPUs"
        return
    refuse_unknown(made, trace, performance, {})
    plan = simulate(trace, machines, made, performance)
    assert (plan.rejected, plan.unfinished) == ((), ())
    on_host = [one for one in plan.executions if one.gang.job == 1]
    assert {one.gang.devices for one in on_host} == {()}


def test_an_engine_without_processors_alone_is_named() -> None:
    trace = replace(jobs((0, 1, 10), (1, 0, 10)), gpus=np.array([1, 0]))
    made = policy("fifo", rules="gavel")
    with pytest.raises(BadInput, match="fifo under the rules of gavel knows none"):
        refuse_unknown(made, trace, performance_of(trace, Machines.of_sizes([2])), {})
