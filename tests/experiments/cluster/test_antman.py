"""AntMan: guaranteed jobs as fast as alone, opportunistic ones on what is left."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.cluster.interface import ClusterPlan, Machines
from experiments.cluster.simulator import simulate
from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.workloads.jobs import GUARANTEED, OPPORTUNISTIC, JobTrace
from tests.experiments.cluster.traces import faults, jobs

Row = tuple[float, int, float, str, float]
ONE_GPU = Machines.of_sizes([1])


def classed(*rows: Row) -> JobTrace:
    """Jobs from ``(submit, gpus, service on a whole GPU, class, utilization)`` rows."""
    trace = jobs(*[row[:3] for row in rows])
    traits = {"class": tuple(row[3] for row in rows), "utilization": np.array([row[4] for row in rows])}
    return replace(trace, traits=traits)


def run(trace: JobTrace, machines: Machines = ONE_GPU, **knobs: object) -> ClusterPlan:
    plan = simulate(trace, machines, registry.create("cluster", "antman", knobs))
    assert faults(plan, trace, machines) == []
    return plan


def spans(plan: ClusterPlan) -> dict[int, tuple[float, float]]:
    """From when to when each job lived with devices."""
    found: dict[int, tuple[float, float]] = {}
    for one in plan.executions:
        start, end = found.get(one.gang.job, (one.start, one.end))
        found[one.gang.job] = (min(start, one.start), max(end, one.end))
    return found


def test_an_opportunistic_job_gets_what_is_left_and_then_everything() -> None:
    """0.3 of the GPU for 50 s are 15 of its 30 s; alone it needs 15 s more."""
    trace = classed((0, 1, 50, GUARANTEED, 0.7), (0, 1, 30, OPPORTUNISTIC, 1.0))
    assert spans(run(trace)) == {0: (0, 50), 1: (0, pytest.approx(65))}


def test_a_guaranteed_job_squeezes_whoever_is_there() -> None:
    """Alone for 10 s, at 0.3 for 50 s (15 s of work), then the last 5 s alone."""
    trace = classed((0, 1, 30, OPPORTUNISTIC, 1.0), (10, 1, 50, GUARANTEED, 0.7))
    assert spans(run(trace)) == {0: (0, pytest.approx(65)), 1: (10, 60)}


def test_memory_on_the_host_halves_its_speed_and_nothing_fails() -> None:
    """0.15 for 50 s are 7.5 of 30 s."""
    trace = classed((0, 1, 50, GUARANTEED, 0.7), (0, 1, 30, OPPORTUNISTIC, 1.0))
    found = spans(run(trace, guaranteed_memory=0.8))
    assert found == {0: (0, 50), 1: (0, pytest.approx(72.5))}


def test_a_gpu_without_idle_time_suspends_its_guest() -> None:
    trace = classed((0, 1, 30, OPPORTUNISTIC, 1.0), (10, 1, 50, GUARANTEED, 1.0))
    assert [(s.gang.job, s.start, s.end) for s in run(trace).executions] == [
        (0, 0, 10),
        (1, 10, 60),
        (0, 60, 80),
    ]


def test_guests_go_to_the_gpu_that_is_used_least_and_guaranteed_jobs_where_nobody_is_squeezed() -> None:
    rows: list[Row] = [(0, 1, 90, GUARANTEED, 0.8), (0, 1, 90, GUARANTEED, 0.4)]
    rows += [(1, 1, 90, OPPORTUNISTIC, 1.0), (2, 1, 90, GUARANTEED, 0.5)]
    plan = run(classed(*rows), Machines.of_sizes([4]))
    first = {s.gang.job: s.gang.devices for s in reversed(list(plan.executions))}
    assert (first[2], first[3]) == ((2,), (3,))


class TestQuotas:
    def trace(self) -> JobTrace:
        rows: list[Row] = [(0, 1, 50, GUARANTEED, 0.5), (0, 1, 100, GUARANTEED, 0.5)]
        return replace(classed(*rows), tenant=("a", "a"))

    def test_beyond_its_quota_a_job_is_opportunistic_until_the_quota_frees_up(self) -> None:
        """One GPU, a quota of one: both run at once, one of them as a guest at the half that it uses."""
        assert spans(run(self.trace(), quotas="a:1")) == {0: (0, 50), 1: (0, 100)}

    def test_a_tenant_without_a_quota_is_guaranteed_nothing(self) -> None:
        plan = run(self.trace(), quotas="b:1")
        assert spans(plan) == {0: (0, 50), 1: (50, 150)}, "at most one guest on a GPU"

    def test_a_quota_that_is_none_is_named(self) -> None:
        with pytest.raises(BadInput, match="'a' is not a quota"):
            registry.create("cluster", "antman", {"quotas": "a"})


rows = st.tuples(
    st.integers(0, 50),
    st.integers(1, 4),
    st.integers(1, 40),
    st.sampled_from([GUARANTEED, OPPORTUNISTIC]),
    st.sampled_from([0.2, 0.5, 0.7, 1.0]),
)


@settings(max_examples=40)
@given(rows=st.lists(rows, min_size=1, max_size=15))
def test_guaranteed_jobs_end_as_if_there_were_no_others(rows: list[Row]) -> None:
    """To the second, whatever opportunistic jobs come, as long as devices are chosen by number alone."""
    kept = [job for job, row in enumerate(sorted(rows, key=lambda row: row[0])) if row[3] == GUARANTEED]
    if not kept:
        return
    ordered = sorted(rows, key=lambda row: row[0])
    machines = Machines.of_sizes([4])
    found = spans(run(classed(*ordered), machines))
    expected = spans(run(classed(*[ordered[job] for job in kept]), machines))
    assert [found[job] for job in kept] == [expected[place] for place in range(len(kept))]
