"""Laws that hold of every scheduler where jobs run as fast as their devices are many: nothing is faster than
alone, the cluster does no more than it can, and in slow motion the same happens.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.cluster.interface import ClusterPlan, ClusterPolicy, Machines
from experiments.cluster.simulator import simulate
from experiments.core import registry
from experiments.workloads.jobs import JobTrace
from tests.experiments.cluster.test_invariants import MACHINES, POLICIES, policy, rows
from tests.experiments.cluster.traces import jobs, suited

#: Seconds as knobs have them.
OF_TIME = ("s", "GPU s")
SLOWER = 2.0
CAPACITY = 8
#: Engines that count in steps of their own have no slow motion.
TICKS = {"tiresias-artifact": "the released engine counts whole seconds"}


def runs_at_plain_rates(name: str) -> bool:
    """Whether jobs of this policy's trace run at the rate of their devices, and not by a table or model."""
    trace, performance = suited(jobs((0, 1, 1)), policy(name), MACHINES)
    return performance.name == "fixed" and "gpu_share" not in trace.traits


PLAIN = [name for name in POLICIES if runs_at_plain_rates(name)]
plain_policies = pytest.mark.parametrize("name", PLAIN)


def ends_of(plan: ClusterPlan, trace: JobTrace) -> np.ndarray:
    """When each job ended; NaN for one that never did."""
    found = np.full(len(trace), np.nan)
    for one in plan.executions:
        if one.completed:
            found[one.gang.job] = one.end
    return found


def test_most_schedulers_are_held_to_these_laws() -> None:
    assert len(PLAIN) >= 15, PLAIN


@plain_policies
@settings(max_examples=8)
@given(rows=rows, restart=st.sampled_from([0.0, 2.5]))
def test_no_job_is_sooner_than_alone_and_the_cluster_does_no_more_than_it_can(
    name: str, rows: list[tuple[int, int, int]], restart: float
) -> None:
    made = policy(name, restart_cost=restart)
    trace, performance = suited(jobs(*rows), made, MACHINES)
    plan = simulate(trace, MACHINES, made, performance)
    took = ends_of(plan, trace) - trace.submit
    most = trace.gpus if made.rigid else np.full(len(trace), CAPACITY)
    alone = trace.service * trace.gpus / most
    ended = ~np.isnan(took)
    assert (took[ended] >= alone[ended] * (1 - 1e-9) - 1e-9).all()
    if ended.any():
        done = float((trace.service * trace.gpus)[ended].sum())
        span = float(np.nanmax(ends_of(plan, trace)) - trace.submit.min())
        assert span * CAPACITY >= done * (1 - 1e-9) - 1e-9


def slow_policy(made: ClusterPolicy) -> ClusterPolicy:
    """The policy with every time of its knobs stretched."""
    told = {one.name: getattr(made, one.name) for one in fields(made) if one.metadata.get("unit") in OF_TIME}
    stretched = {name: value * SLOWER for name, value in told.items() if isinstance(value, float)}
    found = registry.create("cluster", made.name, {**made.knob_values(), **stretched})
    assert isinstance(found, ClusterPolicy)
    return found


@plain_policies
@settings(max_examples=8)
@given(rows=rows)
def test_in_slow_motion_the_same_happens(name: str, rows: list[tuple[int, int, int]]) -> None:
    if name in TICKS:
        pytest.skip(TICKS[name])
    made = policy(name, restart_cost=2.5)
    lasting = [(submit, gpus, max(service, 1)) for submit, gpus, service in rows]  # predictors learn no less
    trace, performance = suited(jobs(*lasting), made, MACHINES)
    times: dict[str, Any] = {
        "submit": trace.submit * SLOWER,
        "service": trace.service * SLOWER,
        "deadline": trace.deadline * SLOWER,
    }
    slow_trace, slow_performance = suited(replace(trace, **times), slow_policy(made), MACHINES)
    slow_trace = replace(slow_trace, **times)
    ends = ends_of(simulate(trace, MACHINES, made, performance), trace)
    slow = ends_of(simulate(slow_trace, MACHINES, slow_policy(made), slow_performance), trace)
    np.testing.assert_allclose(slow, ends * SLOWER, rtol=1e-9, atol=1e-6)


@settings(max_examples=20)
@given(rows=rows)
def test_a_second_virtual_cluster_changes_nothing_of_the_first(rows: list[tuple[int, int, int]]) -> None:
    """Both own half of the nodes under HiveD, which schedules each first in, first out."""
    one = jobs(*((submit, min(gpus, 4), service) for submit, gpus, service in rows))
    sizes = Machines.of_sizes([4, 4])
    twice = jobs(*(row for row in zip(one.submit, one.gpus, one.service, strict=True) for _ in range(2)))
    tenants = tuple(f"{'ab'[place % 2]}" for place in range(len(twice)))

    def ends(trace: JobTrace, machines: Machines, quotas: str) -> np.ndarray:
        made = registry.create("cluster", "hived", {"virtual_clusters": quotas})
        assert isinstance(made, ClusterPolicy)
        suited_trace, performance = suited(trace, made, machines)
        shown = replace(suited_trace, tenant=trace.tenant)
        return ends_of(simulate(shown, machines, made, performance), trace)

    alone = ends(replace(one, tenant=("a",) * len(one)), Machines.of_sizes([4]), "a:4x1")
    shared = ends(replace(twice, tenant=tenants), sizes, "a:4x1,b:4x1")
    np.testing.assert_allclose(shared[::2], alone)
    np.testing.assert_allclose(shared[1::2], alone)
