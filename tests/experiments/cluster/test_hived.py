"""HiveD: a tenant's own cells are there whenever it wants them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.cluster.interface import Allocation, ClusterPlan, ClusterView, Machine, Machines
from experiments.cluster.policies.hived.cluster import Cluster
from experiments.cluster.policies.hived.deciders import Scheduler
from experiments.cluster.policies.hived.virtual import quotas_of, reserved
from experiments.cluster.simulator import simulate
from experiments.core import registry
from experiments.core.errors import BadInput, Infeasible
from experiments.workloads.jobs import GUARANTEED, OPPORTUNISTIC, JobTrace
from tests.experiments.cluster.traces import faults, jobs

TWO_NODES = Machines.of_sizes([4, 4])


def run(trace: JobTrace, machines: Machines = TWO_NODES, **knobs: Any) -> ClusterPlan:
    plan = simulate(trace, machines, registry.create("cluster", "hived", knobs))
    assert faults(plan, trace, machines) == []
    return plan


def stays(plan: ClusterPlan) -> list[tuple[int, float, float]]:
    return [(one.gang.job, one.start, one.end) for one in plan.executions]


def test_small_jobs_of_one_tenant_leave_the_node_of_the_other_whole() -> None:
    trace = replace(jobs((0, 1, 100), (1, 1, 100), (2, 4, 10)), tenant=("b", "b", "a"))
    assert (2, 2, 12) in stays(run(trace, virtual_clusters="a:4x1, b:4x1"))


def test_opportunistic_jobs_use_everything_and_give_way() -> None:
    trace = replace(
        jobs((0, 4, 100), (0, 4, 100), (10, 4, 20)),
        tenant=("x", "x", "a"),
        traits={"class": (OPPORTUNISTIC, OPPORTUNISTIC, GUARANTEED)},
    )
    found = stays(run(trace, virtual_clusters="a:4x1, b:4x1"))
    assert sorted(found) == [(0, 0, 10), (0, 30, 120), (1, 0, 100), (2, 10, 30)]


def test_a_higher_priority_preempts_inside_its_virtual_cluster_only() -> None:
    trace = replace(
        jobs((0, 4, 100), (0, 4, 100), (10, 4, 20)),
        tenant=("a", "b", "a"),
        traits={"priority": np.array([0.0, 0.0, 1.0])},
    )
    found = stays(run(trace, virtual_clusters="a:4x1, b:4x1"))
    assert sorted(found) == [(0, 0, 10), (0, 30, 120), (1, 0, 100), (2, 10, 30)]


def test_what_can_never_run_is_refused_with_the_reason() -> None:
    trace = replace(jobs((0, 8, 10), (0, 1, 10), (0, 1, 10)), tenant=("a", "nobody", "a"))
    plan = run(trace, virtual_clusters="a:4x1")
    assert plan.reasons == {
        0: "wants 8 GPUs, and the cells of a have 4",
        1: "nobody has no virtual cluster",
    }


def test_cells_that_do_not_fit_are_named_by_level() -> None:
    with pytest.raises(Infeasible, match="lacks 1 of 4 GPUs"):
        run(jobs((0, 1, 1)), virtual_clusters="a:4x2, b:4x1")
    with pytest.raises(Infeasible, match="lacks 1 of 2 GPUs"):
        run(jobs((0, 1, 1)), virtual_clusters="a:4x1, b:2x3")
    with pytest.raises(Infeasible, match="lacks 1 of 3 GPUs"):
        run(jobs((0, 1, 1)), virtual_clusters="a:3x1")


MIXED = Machines([Machine("old", 4, "K80"), Machine("new", 4, "V100"), Machine("spare", 4, "V100")])


def test_a_level_or_type_that_no_node_has_is_refused_with_its_tenant() -> None:
    with pytest.raises(Infeasible, match="b owns cells of 8 GPUs, and no node has such cells"):
        run(jobs((0, 1, 1)), virtual_clusters="a:4x1, b:8x1")
    with pytest.raises(Infeasible, match="b owns cells of 4 A100 GPUs, and no node has such cells"):
        run(jobs((0, 1, 1)), MIXED, virtual_clusters="a:4x1, b:4x1@A100")
    with pytest.raises(Infeasible, match="lacks 1 of 4 V100 GPUs"):
        run(jobs((0, 1, 1)), MIXED, virtual_clusters="b:4x3@V100")


def test_cells_of_a_type_are_found_on_nodes_of_that_type() -> None:
    """The larger part of a has no type, and leaves the two V100 nodes to b."""
    trace = replace(jobs((0, 4, 10), (0, 4, 10), (0, 4, 10)), tenant=("a", "b", "b"))
    plan = run(trace, MIXED, virtual_clusters="a:4x1, b:4x2@V100")
    assert [(one.gang.job, one.gang.devices[0]) for one in plan.executions] == [(0, 0), (1, 4), (2, 8)]


def test_a_job_of_a_type_that_its_tenant_does_not_own_is_refused() -> None:
    trace = jobs((0, 4, 10), (0, 4, 10), (0, 8, 10), (0, 1, 10))
    asks = {"gpu_type": ("V100", "K80", "V100", "")}
    trace = replace(trace, tenant=("a",) * 4, traits=asks)
    plan = run(trace, MIXED, virtual_clusters="a:4x1@V100, a:2x1")
    assert plan.reasons == {
        1: "wants 4 GPUs of type K80, and the cells of a have 2",
        2: "wants 8 GPUs of type V100, and the cells of a have 4",
    }
    assert {one.gang.job: one.gang.devices for one in plan.executions} == {0: (4, 5, 6, 7), 3: (0,)}


@pytest.mark.parametrize("words", ["a", "a:4", "a:x2", "a:0x1", "a:4x²", "a:4x1@"])
def test_words_that_are_no_cells_are_named(words: str) -> None:
    with pytest.raises(BadInput, match="is no cell of a tenant"):
        registry.create("cluster", "hived", {"virtual_clusters": words})


class TestPreemptionThatTakesTime:
    def test_victims_run_on_while_their_preemptor_has_reserved_the_cells(self) -> None:
        trace = replace(
            jobs((0, 4, 100), (0, 4, 100), (10, 4, 20)),
            tenant=("x", "x", "a"),
            traits={"class": (OPPORTUNISTIC, OPPORTUNISTIC, GUARANTEED)},
        )
        found = stays(run(trace, virtual_clusters="a:4x1, b:4x1", preemption_grace=5))
        assert sorted(found) == [(0, 0, 15), (0, 35, 120), (1, 0, 100), (2, 15, 35)]

    def test_a_victim_that_ends_in_time_is_waited_for_no_longer(self) -> None:
        trace = replace(jobs((0, 4, 12), (10, 4, 20)), traits={"priority": np.array([0.0, 1.0])})
        plan = run(trace, Machines.of_sizes([4]), preemption_grace=5)
        assert stays(plan) == [(0, 0, 12), (1, 12, 32)]

    def test_a_higher_priority_cancels_a_preemptor_and_takes_its_reservation(self) -> None:
        """The victim still leaves by its own time; who was canceled begins to wait again."""
        priority = np.array([0.0, 1.0, 2.0])
        trace = replace(jobs((0, 4, 100), (10, 4, 20), (12, 4, 30)), traits={"priority": priority})
        plan = run(trace, Machines.of_sizes([4]), preemption_grace=5)
        assert stays(plan) == [(0, 0, 15), (2, 15, 45), (1, 45, 65), (0, 65, 150)]

    def test_a_victim_that_nobody_wants_away_any_more_stays(self) -> None:
        """Job 3 takes the half of job 0 from job 2, which had reserved all: job 1 stays until job 3 ends."""
        priority = np.array([0.0, 0.0, 1.0, 2.0])
        trace = jobs((0, 2, 100), (0, 2, 100), (10, 4, 20), (11, 2, 50))
        plan = run(replace(trace, traits={"priority": priority}), Machines.of_sizes([4]), preemption_grace=5)
        first = [(0, 0, 15), (0, 90, 175), (1, 0, 70), (1, 90, 120), (2, 70, 90), (3, 15, 65)]
        assert sorted(stays(plan)) == first

    def test_a_victim_whose_cell_is_gone_leaves_though_its_preemptor_was_canceled(self) -> None:
        """Job 2 takes the only cell from job 1, to node 1: on node 0 nobody waits for job 0's GPUs any more,
        but they are in no cell of its tenant's.
        """
        trace = replace(
            jobs((0, 2, 100), (10, 2, 20), (12, 2, 30)),
            tenant=("a",) * 3,
            traits={"priority": np.arange(3.0), "suggested_nodes": ("node-0", "node-0", "node-1")},
        )
        plan = run(trace, Machines.of_sizes([2, 2]), virtual_clusters="a:2x1", preemption_grace=5)
        assert sorted(stays(plan)) == [(0, 0, 15), (0, 62, 147), (1, 42, 62), (2, 12, 42)]

    def test_opportunistic_jobs_do_not_enter_what_is_reserved(self) -> None:
        """Job 1 leaves half the node at 12, which job 2 has reserved until job 0 is gone as well."""
        trace = replace(
            jobs((0, 2, 100), (0, 2, 12), (10, 4, 20), (11, 2, 5)),
            traits={"class": (OPPORTUNISTIC, OPPORTUNISTIC, GUARANTEED, OPPORTUNISTIC)},
        )
        plan = run(trace, Machines.of_sizes([4]), preemption_grace=5)
        assert sorted(stays(plan)) == [(0, 0, 15), (0, 35, 120), (1, 0, 12), (2, 15, 35), (3, 35, 40)]


class TestSuggestedNodes:
    def trace(self, *nodes: str, classes: tuple[str, ...] = (GUARANTEED,) * 3) -> JobTrace:
        rows = [(0, 4, 10), (0, 4, 20), (1, 1, 30)]
        return replace(jobs(*rows), traits={"suggested_nodes": nodes, "class": classes})

    def places(self, trace: JobTrace, **knobs: Any) -> list[tuple[int, int, float]]:
        plan = run(trace, Machines.of_sizes([4, 4, 4]), **knobs)
        return sorted((one.gang.job, one.gang.devices[0], one.start) for one in plan.executions)

    @pytest.mark.parametrize("kind", [GUARANTEED, OPPORTUNISTIC])
    def test_a_job_goes_to_no_other_node_and_waits_for_its_own(self, kind: str) -> None:
        """Node 0 is free all the time; job 2 passes job 1, which waits until 10."""
        trace = self.trace("node-2", "node-2", "node-1", classes=(kind,) * 3)
        assert self.places(trace) == [(0, 8, 0), (1, 8, 10), (2, 4, 1)]

    @pytest.mark.parametrize("kind", [GUARANTEED, OPPORTUNISTIC])
    def test_suggestions_that_are_ignored_are_only_tried_first(self, kind: str) -> None:
        trace = self.trace("node-2", "node-2", "node-1", classes=(kind,) * 3)
        assert self.places(trace, ignore_suggested=True) == [(0, 8, 0), (1, 0, 0), (2, 4, 1)]

    def test_suggested_nodes_that_never_have_enough_are_a_reason(self) -> None:
        """The cells of a on one node: the larger one, and none next to it."""
        kinds = (GUARANTEED, OPPORTUNISTIC, GUARANTEED)
        trace = replace(self.trace("nowhere", "nowhere", "node-1", classes=kinds), tenant=("a",) * 3)
        assert run(trace, virtual_clusters="a:4x1, a:2x1").reasons == {
            0: "wants 4 GPUs, and on its suggested nodes the cells of a have 0",
            1: "wants 4 GPUs, and on its suggested nodes there are 0",
        }

    def test_another_tenants_cells_are_safe_from_suggestions(self) -> None:
        """b owns a whole node: with one GPU of a on each, none would be left, so that job 1 waits."""
        trace = replace(
            jobs((0, 1, 10), (0, 1, 10), (5, 4, 10)),
            tenant=("a", "a", "b"),
            traits={"suggested_nodes": ("node-0", "node-1", "")},
        )
        plan = run(trace, virtual_clusters="a:1x2, b:4x1")
        assert sorted(stays(plan)) == [(0, 0, 10), (1, 15, 25), (2, 5, 15)]


class TestReconfiguration:
    def test_jobs_without_cells_go_on_until_their_devices_are_asked_for(self) -> None:
        """From 10 on b owns both nodes but one GPU: job 0 of a is a guest until job 2 of b comes at 20."""
        trace = replace(jobs((0, 4, 100), (0, 1, 100), (20, 4, 30)), tenant=("a", "a", "b"))
        knobs = {"reconfigure_at": 10, "new_virtual_clusters": "a:1x1, b:4x1"}
        plan = run(trace, virtual_clusters="a:4x2", **knobs)
        assert sorted(stays(plan)) == [(0, 0, 20), (0, 50, 130), (1, 0, 100), (2, 20, 50)]

    def test_jobs_that_still_fit_keep_their_cells(self) -> None:
        trace = replace(jobs((0, 4, 100), (20, 4, 30), (20, 4, 30)), tenant=("a", "b", "b"))
        knobs = {"reconfigure_at": 10, "new_virtual_clusters": "a:4x1, b:4x1"}
        plan = run(trace, virtual_clusters="a:4x2", **knobs)
        assert plan.reasons == {}
        assert sorted(stays(plan)) == [(0, 0, 100), (1, 20, 50), (2, 50, 80)]

    def test_a_job_of_two_cells_keeps_both_parts_in_one_new_cell(self) -> None:
        trace = replace(jobs((0, 2, 100), (20, 1, 10)), tenant=("a", "a"))
        plan = run(trace, virtual_clusters="a:1x2", reconfigure_at=10, new_virtual_clusters="a:2x1")
        assert sorted(stays(plan)) == [(0, 0, 100), (1, 100, 110)]

    def test_waiting_jobs_that_can_never_run_now_are_refused(self) -> None:
        trace = replace(jobs((0, 8, 100), (1, 8, 10)), tenant=("a", "a"))
        knobs = {"reconfigure_at": 10, "new_virtual_clusters": "a:4x1"}
        plan = run(trace, virtual_clusters="a:4x2", **knobs)
        assert plan.reasons == {1: "wants 8 GPUs, and the cells of a have 4"}
        assert stays(plan) == [(0, 0, 100)]

    def test_new_quotas_are_checked_before_anything_runs(self) -> None:
        with pytest.raises(Infeasible, match="a owns cells of 8 GPUs") as refusal:
            run(jobs((0, 1, 1)), reconfigure_at=10, new_virtual_clusters="a:8x1")
        assert refusal.value.where == "knobs.new_virtual_clusters"
        with pytest.raises(BadInput, match="given together"):
            registry.create("cluster", "hived", {"reconfigure_at": 10})


class TestBadNodes:
    def cluster(self, words: str) -> Cluster:
        made = Cluster(quotas_of(words))
        made.open(TWO_NODES)
        return made

    def test_a_node_that_is_down_is_avoided_and_then_its_owners_loss(self) -> None:
        cluster = self.cluster("a:4x1, b:4x1")
        cluster.down = frozenset({0})
        assert cluster.place(0, 4, "a") == (4, 5, 6, 7)
        assert cluster.place(1, 4, "b") is None
        cluster.down = frozenset()
        assert cluster.place(1, 4, "b") == (0, 1, 2, 3)

    def test_a_larger_cell_is_split_where_that_is_safe(self) -> None:
        """One device of the first node is in use when it goes down; the other node is nobody's."""
        cluster = self.cluster("a:1x2")
        assert cluster.place(0, 1, "a") == (0,)
        cluster.down = frozenset({0})
        assert cluster.place(1, 1, "a") == (4,)

    def test_a_larger_cell_that_is_owned_is_not_split(self) -> None:
        cluster = self.cluster("a:1x2, b:4x1")
        assert cluster.place(0, 1, "a") == (0,)
        cluster.down = frozenset({0})
        assert cluster.place(1, 1, "a") is None
        assert cluster.place(2, 4, "b") == (4, 5, 6, 7)


QUOTAS = ["a:8x1, b:4x2, c:2x1, c:1x6", "a:8x2, b:4x1, c:1x4", "a:2x6, b:4x2, c:2x2", "a:1x24"]


@settings(max_examples=150)
@given(
    words=st.sampled_from(QUOTAS),
    steps=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 2), st.integers(1, 8)), max_size=60),
    bad=st.booleans(),
)
def test_no_tenant_is_ever_refused_a_cell_of_its_own(
    words: str, steps: list[tuple[int, int, int]], bad: bool
) -> None:
    """Random jobs come and go and nodes fail and heal.

    Cells for all that is owned and unused are always left; a job of one unused cell always starts while all
    nodes work.
    """
    cluster, machines = Cluster(quotas_of(words)), Machines.of_sizes([8, 8, 8])
    cluster.open(machines)
    for number, (action, which, gpus) in enumerate(steps):
        if action < 4 and cluster.placed:
            cluster.release(sorted(cluster.placed)[gpus % len(cluster.placed)])
        elif action == 4 and bad:
            cluster.down ^= frozenset({which})
        else:
            tenants = sorted(cluster.clusters)
            tenant = tenants[which % len(tenants)]
            unused = [cell.size for cell in cluster.clusters[tenant].cells if cell.bound is None]
            placed = cluster.place(number, gpus, tenant)
            if not cluster.down and max(unused, default=0) >= gpus:
                assert placed is not None
            if placed is not None:
                assert len(placed) == gpus
        check(cluster, machines)


class Watched(Scheduler):
    """Looks after every decision whether all that is owned is still there."""

    def allocate(self, view: ClusterView) -> Allocation:
        made = super().allocate(view)
        check(self.cluster, view.pool.machines)
        return made


ROWS = st.tuples(
    st.integers(0, 60),
    st.sampled_from([1, 1, 2, 3, 4, 8]),
    st.integers(1, 60),
    st.sampled_from("abc"),
    st.sampled_from([GUARANTEED, GUARANTEED, OPPORTUNISTIC]),
    st.integers(0, 2),
    st.sampled_from(["", "", "node-0", "node-1|node-2"]),
)


@settings(max_examples=150)
@given(
    words=st.sampled_from(QUOTAS[:2]),
    rows=st.lists(ROWS, min_size=1, max_size=25),
    grace=st.sampled_from([0.0, 3.0, 20.0]),
    mtbf=st.sampled_from([None, 100.0]),
    ignore=st.booleans(),
    change=st.booleans(),
)
def test_what_is_owned_is_there_after_every_decision(
    words: str,
    rows: list[tuple[int, int, int, str, str, int, str]],
    grace: float,
    mtbf: float | None,
    ignore: bool,
    change: bool,
) -> None:
    rows = sorted(rows)
    trace = replace(
        jobs(*[row[:3] for row in rows]),
        tenant=tuple(row[3] for row in rows),
        traits={
            "class": tuple(row[4] for row in rows),
            "priority": np.array([float(row[5]) for row in rows]),
            "suggested_nodes": tuple(row[6] for row in rows),
        },
    )
    knobs = {
        "virtual_clusters": words,
        "preemption_grace": grace,
        "node_mtbf": mtbf,
        "node_repair": 30.0,
        "ignore_suggested": ignore,
    }
    if change:
        knobs |= {"reconfigure_at": 30.0, "new_virtual_clusters": "a:1x4, b:4x3, c:8x1"}
    with patch("experiments.cluster.policies.hived.Scheduler", Watched):
        plan = run(trace, Machines.of_sizes([8, 8, 8]), **knobs)
    assert plan.unfinished == ()


def check(cluster: Cluster, machines: Machines) -> None:
    """Everything owned and unused has room, and no device is in two jobs."""
    held = [
        d for one in cluster.clusters.values() for cell in one.cells for at in cell.jobs.values() for d in at
    ]
    assert len(held) == len(set(held))
    for chain in cluster.chains.values():
        assert chain.lack(reserved(cluster.clusters.values(), chain)) is None
        free = sum(size * len(cells) for size, cells in chain.free.items())
        bound = sum(
            cell.size for one in cluster.clusters.values() for cell in one.cells if cell.bound is not None
        )
        assert free + bound == machines.devices
