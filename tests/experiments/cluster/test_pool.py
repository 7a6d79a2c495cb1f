"""What is free after any gangs were given and taken back, against plain sums; and where gangs are placed."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.cluster.interface import PLACEMENTS, Demand, Gang, Machine, Machines, OnHost, Pool

MACHINES = Machines(
    [
        Machine("a", 4, "v100", cpus=8, memory=64e9),
        Machine("b", 0, cpus=32, memory=8e9),
        Machine("c", 2, "t4", cpus=4, memory=32e9),
        Machine("d", 10, "v100", cpus=64, memory=256e9),
    ]
)

gangs = st.builds(
    Gang,
    job=st.integers(0, 9),
    devices=st.lists(st.integers(0, 15), min_size=1, max_size=5, unique=True).map(lambda d: tuple(sorted(d))),
    share=st.sampled_from([0.25, 0.5, 1.0]),
    memory=st.sampled_from([0.25, 1.0]),
    hosts=st.sampled_from([(), (OnHost(0, 3.0, 1e9),), (OnHost(2, 1.0, 20e9), OnHost(3, 30.0, 0.0))]),
)


def fits(held: list[Gang], gang: Gang) -> bool:
    """By adding everything up."""
    for device in gang.devices:
        others = [other for other in held if device in other.devices]
        if (
            sum(other.share for other in others) + gang.share > 1
            or sum(other.memory for other in others) + gang.memory > 1
        ):
            return False
    for node, cpus, memory in gang.hosts:
        hosts = [host for other in held for host in other.hosts if host.node == node]
        if sum(host.cpus for host in hosts) + cpus > MACHINES[node].cpus:
            return False
        if sum(host.memory for host in hosts) + memory > MACHINES[node].memory:
            return False
    return True


@given(moves=st.lists(st.tuples(gangs, st.booleans()), max_size=30))
def test_what_is_free_is_what_nobody_holds(moves: list[tuple[Gang, bool]]) -> None:
    pool, held = Pool(MACHINES), list[Gang]()
    for gang, gives_back in moves:
        if gives_back and held:
            pool.give_back(held.pop(gang.job % len(held)))
        assert (pool.lack(gang) == "") == fits(held, gang)
        if fits(held, gang):
            pool.take(gang)
            held.append(gang)
        else:
            with pytest.raises(ValueError, match=r"job \d+ is given"):
                pool.take(gang)
        whole = [d for d in range(MACHINES.devices) if not any(d in other.devices for other in held)]
        assert [d for node in range(4) for d in pool.free_devices(node)] == whole
        assert pool.free == [sum(MACHINES.node_of[d] == node for d in whole) for node in range(4)]
        assert pool.total == len(whole)
        for device in range(MACHINES.devices):
            compute = 1 - sum(other.share for other in held if device in other.devices)
            assert pool.left_of(device)[0] == pytest.approx(compute)


def test_a_copy_is_its_own() -> None:
    pool = Pool(MACHINES)
    pool.copy().take(Gang(0, (0, 1), hosts=(OnHost(0, 3.0, 1e9),)))
    assert (pool.total, pool.cpus[0]) == (16, 8)


@pytest.mark.parametrize(
    ("demand", "devices", "hosts"),
    [
        (Demand(3), (0, 1, 2), ()),
        (Demand(3, types=("t4", "v100")), (0, 1, 2), ()),
        (Demand(2, types=("t4",)), (4, 5), ()),
        (Demand(3, types=("t4",)), None, ()),
        (Demand(2, cpus=10.0), (0, 6), (OnHost(0, 5.0, 0.0), OnHost(3, 5.0, 0.0))),
        (Demand(0, cpus=9.0, memory=1e9), (), (OnHost(1, 9.0, 1e9),)),
        (Demand(0, cpus=65.0), None, ()),
        (Demand(1, share=0.5), (0,), ()),
    ],
)
def test_a_demand_is_placed_where_all_of_it_is(
    demand: Demand, devices: tuple[int, ...] | None, hosts: tuple[OnHost, ...]
) -> None:
    gang = Pool(MACHINES).place(0, demand, "count")
    assert (gang.devices if gang else None) == devices
    assert gang is None or gang.hosts == hosts


def test_parts_go_where_least_is_left() -> None:
    pool = Pool(MACHINES)
    pool.take(Gang(0, (5,), 0.25, 0.25))
    pool.take(Gang(1, (3,), 0.5, 0.5))
    half = pool.place(2, Demand(1, share=0.5), "count")
    assert half == Gang(2, (3,), 0.5, 0.5)
    pool.take(half)
    assert pool.place(3, Demand(1, share=0.5), "count") == Gang(3, (5,), 0.5, 0.5)


def test_a_closed_node_has_nothing_and_is_whole_again_afterwards() -> None:
    pool = Pool(MACHINES)
    pool.close(3)
    assert (pool.total, pool.free, pool.place(0, Demand(7), "count")) == (6, [4, 0, 2, 0], None)
    pool.reopen(3)
    assert pool.total == 16 and pool.free_devices(3) == list(range(6, 16))


def test_what_nobody_told_is_enough() -> None:
    node = Machines.of_sizes([1])[0]
    assert math.isinf(node.cpus) and math.isinf(node.memory)
    assert Pool(Machines([node])).place(0, Demand(1, cpus=1e6, memory=1e18), "pack") is not None


class TestConsolidate:
    """Waits for the fewest nodes that could hold a job: of its type, and with its processors."""

    def test_larger_nodes_of_another_type_do_not_count(self) -> None:
        pool = Pool(Machines([Machine("a", 2, "v100"), Machine("b", 2, "v100"), Machine("c", 4, "t4")]))
        gang = pool.place(0, Demand(4, types=("v100",)), "consolidate")
        assert gang is not None and gang.devices == (0, 1, 2, 3)

    def test_a_node_counts_for_the_devices_that_its_processors_are_enough_for(self) -> None:
        """Six processors a device: a node of twelve gives two of its four."""
        pool = Pool(Machines([Machine(name, 4, "v100", cpus=12) for name in "ab"]))
        gang = pool.place(0, Demand(4, cpus=24.0), "consolidate")
        assert gang is not None and gang.devices == (0, 1, 4, 5)
        pool.take(gang)
        assert pool.place(1, Demand(2, cpus=12.0), "consolidate") is None

    @given(
        sizes=st.lists(st.tuples(st.integers(1, 4), st.sampled_from("ab"), st.integers(1, 9)), min_size=1),
        gpus=st.integers(1, 8),
        cpus=st.integers(0, 20),
        types=st.sampled_from([(), ("a",), ("b",)]),
    )
    def test_what_an_empty_cluster_holds_finds_a_place_by_every_rule(
        self, sizes: list[tuple[int, str, int]], gpus: int, cpus: int, types: tuple[str, ...]
    ) -> None:
        pool = Pool(Machines([Machine(str(place), *row[:2], cpus=row[2]) for place, row in enumerate(sizes)]))
        demand = Demand(gpus, cpus=float(cpus), types=types)
        suited = [(size, own) for size, kind, own in sizes if not types or kind in types]
        holds = sum(min(size, own * gpus // cpus if cpus else size) for size, own in suited)
        for rule in PLACEMENTS:
            assert (pool.place(0, demand, rule) is not None) == (holds >= gpus), rule


def test_buddies_of_which_there_are_too_few_are_not_taken_twice() -> None:
    """Two free devices, one of the type that is asked for."""
    pool = Pool(Machines([Machine("a", 1, "v100"), Machine("b", 1, "t4")]))
    assert pool.place(0, Demand(2, types=("v100",)), "buddy") is None
