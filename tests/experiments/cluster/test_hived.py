"""HiveD: a tenant's own cells are there whenever it wants them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from experiments.cluster.interface import ClusterPlan, Machine, Machines
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
