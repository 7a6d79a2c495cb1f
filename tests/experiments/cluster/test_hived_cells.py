"""HiveD's cells: what a tenant owns is there whenever it wants it, also while nodes fail."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.cluster.interface import Allocation, ClusterView, Machines
from experiments.cluster.policies.hived.cluster import Cluster
from experiments.cluster.policies.hived.deciders import Scheduler
from experiments.cluster.policies.hived.virtual import quotas_of, reserved
from experiments.workloads.jobs import GUARANTEED, OPPORTUNISTIC
from tests.experiments.cluster.test_hived import TWO_NODES, run
from tests.experiments.cluster.traces import jobs


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
