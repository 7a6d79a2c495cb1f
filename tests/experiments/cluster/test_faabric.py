"""Faabric: packing, growing and migrating granules, by hand and as laws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.cluster.interface import ClusterPlan, Demand, Gang, Machine, Machines, Pool
from experiments.cluster.policies.faabric.hosts import fill, freest, gang_on, hosts_for, links, new, scale
from experiments.cluster.simulator import figures, simulate
from experiments.core import registry
from experiments.workloads.jobs import JobTrace
from tests.experiments.cluster.traces import faults, jobs


def cluster(**slots: int) -> Machines:
    return Machines([Machine(name, count) for name, count in slots.items()])


def planned(trace: JobTrace, machines: Machines, name: str = "faabric", **knobs: Any) -> ClusterPlan:
    plan = simulate(trace, machines, registry.create("cluster", name, knobs))  # type: ignore[arg-type]
    assert faults(plan, trace, machines, rigid=name == "faabric") == []
    return plan


def stays(plan: ClusterPlan, job: int) -> list[tuple[float, tuple[int, ...]]]:
    """When and on which devices each execution of a job began."""
    found = [(one.start, one.gang.devices) for one in plan.executions if one.gang.job == job]
    return sorted(found)


def of_tenants(trace: JobTrace, tenants: str) -> JobTrace:
    return replace(trace, tenant=tuple(tenants))


class TestTheCard:
    """X and Y with 4 slots, 2 of each taken; an app of 4 has the others."""

    machines = cluster(X=4, Y=4)
    trace = jobs((0, 2, 50), (0, 2, 500), (1, 4, 400))

    def test_when_the_neighbor_leaves_exactly_two_granules_migrate(self) -> None:
        """The app has 2 granules beside each neighbor. At 50 s one leaves; from 80 s on all 4 are there."""
        plan = planned(self.trace, self.machines)
        before, after = stays(plan, 2)
        assert (before[0], after[0]) == (1, 80)
        assert sorted(self.machines.by_node(before[1])) == [(0, 2), (1, 2)]
        assert self.machines.by_node(after[1]) == ((1, 4),)
        assert len(set(before[1]) & set(after[1])) == 2
        assert figures(plan, self.trace, self.machines)["migrations"] == 1

    def test_an_empty_third_host_moves_nothing_unless_the_freest_come_first(self) -> None:
        """A third host falls empty; own hosts first still gives 2 and 2, as a later release would not."""
        machines = cluster(W=4, X=4, Y=4)
        busy = jobs((0, 4, 50), (0, 3, 500), (0, 3, 500), (1, 2, 400))
        kept = planned(busy, machines)
        assert len(stays(kept, 3)) == 1
        moved = planned(busy, machines, first="freest hosts")
        assert len(stays(moved, 3)) == 2
        assert len(machines.by_node(stays(moved, 3)[1][1])) == 1


class TestOrders:
    def test_a_new_app_fills_the_freest_then_the_largest_then_the_last_name(self) -> None:
        machines = cluster(a=2, b=4, c=4, d=6)
        pool = Pool(machines)
        pool.take(Gang(9, (12, 13)))
        order = [host.name for host in sorted(hosts_for(pool, Demand(1), {}), key=new)]
        assert order == ["d", "c", "b", "a"]
        assert fill(hosts_for(pool, Demand(9), {}), new, 9) == {3: 4, 2: 4, 1: 1}
        assert fill(hosts_for(pool, Demand(9), {}), new, 15) is None

    def test_more_granules_go_where_an_app_has_most(self) -> None:
        pool = Pool(cluster(a=4, b=8))
        pool.take(Gang(0, (0, 1)))
        assert fill(hosts_for(pool, Demand(3), {0: 2}), scale, 3) == {0: 2, 1: 1}

    def test_hosts_first_then_pairs_on_different_ones(self) -> None:
        assert links({0: 4}) == (1, 0)
        assert links({0: 2, 1: 2}) == (2, 4) > links({0: 3, 1: 1}) == (2, 3)
        assert links({0: 2, 1: 1, 2: 1}) == (3, 5)

    def test_threads_stay_on_one_host(self) -> None:
        machines = cluster(a=4, b=4)
        trace = jobs((0, 2, 50), (0, 2, 50), (1, 3, 10))
        starts = {one.gang.job: one.start for one in planned(trace, machines, threads=True).executions}
        assert starts[2] == 50
        assert {one.gang.job: one.start for one in planned(trace, machines).executions}[2] == 1


#: Slots, slots in use, and the app's granules by host, with those that it should have; as the release is
#: tested. ``None``: it stays.
RELEASED: dict[str, tuple[dict[str, int], dict[str, int], dict[str, int], dict[str, int] | None]] = {
    "one host": ({"foo": 4}, {"foo": 2}, {"foo": 2}, None),
    "nowhere better": ({"foo": 4, "bar": 2}, {"foo": 4, "bar": 1}, {"foo": 4, "bar": 1}, None),
    "all on one": ({"foo": 4, "bar": 2}, {"foo": 2, "bar": 2}, {"foo": 2, "bar": 2}, {"foo": 4}),
    "tie: free slots": ({"foo": 4, "bar": 5}, {"foo": 2, "bar": 2}, {"foo": 2, "bar": 2}, {"bar": 4}),
    "tie: all slots": ({"foo": 4, "bar": 5}, {"foo": 2, "bar": 3}, {"foo": 2, "bar": 2}, {"bar": 4}),
    "tie: name": ({"foo": 4, "bar": 4}, {"foo": 2, "bar": 2}, {"foo": 2, "bar": 2}, {"foo": 4}),
    "where it has most": (
        {"foo": 3, "bar": 2, "baz": 1},
        {"foo": 2, "bar": 1, "baz": 1},
        {"foo": 2, "bar": 1, "baz": 1},
        {"foo": 3, "bar": 1},
    ),
    "where there is most": (
        {"foo": 3, "bar": 5, "baz": 1},
        {"foo": 2, "bar": 1, "baz": 1},
        {"foo": 2, "bar": 1, "baz": 1},
        {"bar": 4},
    ),
    "fewer hosts": (
        {"foo": 3, "bar": 5, "baz": 1},
        {"foo": 1, "bar": 1, "baz": 1},
        {"foo": 1, "bar": 1, "baz": 1},
        {"bar": 3},
    ),
    "fewer pairs": ({"foo": 4, "bar": 4}, {"foo": 3, "bar": 3}, {"foo": 3, "bar": 3}, {"foo": 4, "bar": 2}),
    "fewer of four": (
        {"foo": 2, "bar": 2, "baz": 1, "bat": 1},
        {"foo": 1, "bar": 1, "baz": 1, "bat": 1},
        {"foo": 1, "bar": 1, "baz": 1, "bat": 1},
        {"foo": 2, "bar": 2},
    ),
    "other hosts": (
        {"foo": 4, "bar": 4, "baz": 4},
        {"foo": 4, "bar": 4},
        {"foo": 2, "bar": 2},
        {"baz": 4},
    ),
}


@pytest.mark.parametrize("case", RELEASED)
def test_the_freest_first_as_the_release_decides(case: str) -> None:
    slots, used, app, expected = RELEASED[case]
    machines, names = cluster(**slots), list(slots)
    own = {names.index(name): count for name, count in app.items()}
    pool = Pool(machines)
    others = {names.index(name): count - app.get(name, 0) for name, count in used.items()}
    if any(others.values()):
        pool.take(gang_on(9, others, Demand(sum(others.values())), pool))
    found = fill(hosts_for(pool, Demand(sum(own.values())), own), freest, sum(own.values()))
    assert found is not None
    stays_there = links(found) >= links(own)
    assert (None if stays_there else {names[node]: count for node, count in found.items()}) == expected


class TestVariants:
    def test_compact_keeps_tenants_apart(self) -> None:
        machines = cluster(a=4, b=4)
        trace = of_tenants(jobs((0, 1, 50), (0, 1, 50), (1, 3, 50), (2, 4, 10)), "ABAB")
        plan = planned(trace, machines, variant="compact")
        nodes = {one.gang.job: machines.by_node(one.gang.devices) for one in plan.executions}
        assert {node for node, _ in nodes[0]}.isdisjoint(node for node, _ in nodes[1])
        assert nodes[2] == ((nodes[0][0][0], 3),)

    def test_compact_empties_hosts(self) -> None:
        """Two jobs of 2 are on hosts of their own, another with each; when those end one host takes both."""
        machines = cluster(a=4, b=4)
        trace = of_tenants(jobs((0, 2, 300), (0, 2, 300), (1, 2, 20), (1, 2, 20)), "AAAA")
        plan = planned(trace, machines, variant="compact")
        last = {one.gang.job: machines.by_node(one.gang.devices) for one in plan.executions if one.completed}
        assert last[0] == last[1]
        assert len(planned(trace, machines).executions) == 4

    def test_spot_leaves_a_host_before_it_goes_or_freezes(self) -> None:
        """Nodes fail often, known a minute ahead: no job is ever on one that goes, so nothing is lost."""
        machines = cluster(a=4, b=4, c=4)
        trace = jobs(*[(10 * row, 1 + row % 4, 200) for row in range(20)])
        knobs: dict[str, Any] = {
            "node_mtbf": 900.0,
            "node_repair": 100.0,
            "failure_notice": 60.0,
            "checkpoint_every": 1e6,
        }
        told, surprised = (
            planned(trace, machines, variant=variant, **knobs) for variant in ("spot", "bin-pack")
        )
        lost = [figures(plan, trace, machines)["lost_gpu_seconds"] for plan in (told, surprised)]
        assert lost[0] == 0 < lost[1]
        assert told.down

    def test_elastic_apps_grow_as_slots_fall_free(self) -> None:
        machines = cluster(a=4, b=4)
        trace = jobs((0, 6, 30), (1, 4, 40))
        plan = planned(trace, machines, "faabric-elastic")
        sizes = [(start, len(devices)) for start, devices in stays(plan, 1)]
        assert sizes == [(1, 2), (30, 4)]
        before, after = (devices for _, devices in stays(plan, 1))
        assert set(before) <= set(after)


spreads = st.dictionaries(st.integers(0, 3), st.integers(1, 4), min_size=1, max_size=4)


@settings(max_examples=100)
@given(old=spreads, new_counts=spreads)
def test_relabelling_moves_as_few_as_the_counts_allow(
    old: dict[int, int], new_counts: dict[int, int]
) -> None:
    pool = Pool(Machines.of_sizes([4] * 4))
    held = gang_on(0, old, Demand(sum(old.values())), pool)
    moved = gang_on(0, new_counts, Demand(sum(new_counts.values())), pool, held.devices)
    assert dict(pool.machines.by_node(moved.devices)) == new_counts
    stay = len(set(held.devices) & set(moved.devices))
    assert stay == sum(min(old.get(node, 0), count) for node, count in new_counts.items())


rows = st.lists(
    st.tuples(st.integers(0, 300), st.integers(1, 8), st.integers(1, 200)), min_size=2, max_size=20
)


@settings(max_examples=40, deadline=None)
@given(rows=rows, first=st.sampled_from(["own hosts", "freest hosts"]))
def test_every_migration_packs_better(rows: list[tuple[int, int, int]], first: str) -> None:
    machines = Machines.of_sizes([4, 2, 4])
    plan = planned(jobs(*rows), machines, first=first)
    for job in range(len(rows)):
        spreads = [dict(machines.by_node(devices)) for _, devices in stays(plan, job)]
        packed = [links(spread) for spread in spreads]
        assert packed == sorted(set(packed), reverse=True)


@pytest.mark.parametrize("variant", ["bin-pack", "compact", "spot"])
def test_looks_for_migrations_end_when_nothing_leaves(variant: str) -> None:
    trace = jobs((0, 2, 1e6), (0, 1, 10))
    plan = planned(trace, cluster(a=4), variant=variant, check_period=1.0)
    assert plan.facts["decisions"] < 10
