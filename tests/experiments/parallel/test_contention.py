"""Messages that meet: on an adapter, an uplink or not at all; devices that are slower than others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.hardware import Hardware, Link, Switch, resolve
from experiments.parallel.interface import ParallelPlan, Sharding, Slot, Stage, Worker
from experiments.parallel.policies.data_parallel import DataParallel
from experiments.parallel.policies.gpipe import GPipe
from experiments.parallel.policies.zero import Zero
from experiments.parallel.simulator import simulate
from experiments.parallel.simulator.network import Message, Network
from experiments.parallel.simulator.tasks import TaskGraph, replay
from tests.experiments.parallel.builders import chain, cluster, estimate

BYTE_A_SECOND = Link("slow", 1.0, 0.0, True, "test")


def ends(*messages: Message) -> list[float]:
    """When each of the messages ends, all ready at 0."""
    graph = TaskGraph()
    tasks = [graph.send("message", message) for message in messages]
    times = replay(graph)
    return [times.end[task] for task in tasks]


def wide(nodes: int, per_node: int, network: float = 1.0, **fabric: object) -> Hardware:
    """Node links without bound; ``network`` bytes/s a node."""
    hardware = cluster(nodes, per_node, network=Link("net", network, 0.0, True, "test"))
    return replace(hardware, **fabric)  # type: ignore[arg-type]


def test_two_equal_transfers_over_one_adapter_take_twice_as_long() -> None:
    network = Network(wide(2, 2))
    assert ends(network.point_to_point(0, 2, 5.0)) == [5]
    assert ends(network.point_to_point(0, 2, 5.0), network.point_to_point(1, 3, 5.0)) == [5, 10]
    assert ends(network.point_to_point(0, 2, 5.0), network.point_to_point(3, 1, 5.0)) == [5, 5]


def test_rails_of_separate_devices_do_not_contend() -> None:
    """Two bytes/s a node on two rails: each transfer has one, so both take 5 s."""
    network = Network(wide(2, 2, network=2.0, rails=2))
    assert ends(network.point_to_point(0, 2, 5.0), network.point_to_point(1, 3, 5.0)) == [5, 5]
    shared = Network(wide(2, 4, network=2.0, rails=2))
    found = ends(*(shared.point_to_point(i, 4 + i, 5.0) for i in range(4)))
    assert found == [5, 10, 5, 10], "two devices share a rail"


@pytest.mark.parametrize(("taper", "together"), [(1.0, 6), (2.0, 12), (4.0, 24)])
def test_transfers_from_one_leaf_share_its_uplink(taper: float, together: float) -> None:
    """Six nodes, three to a leaf, one to each node of the other leaf: uplinks carry 3/taper bytes
    a second.
    """
    network = Network(wide(6, 1, switch=Switch(3, taper)))
    assert max(ends(*(network.point_to_point(i, i + 3, 6.0) for i in range(3)))) == together
    assert ends(network.point_to_point(0, 1, 6.0), network.point_to_point(3, 4, 6.0)) == [6, 6]


def test_a_collective_and_a_transfer_queue_for_the_node_they_share() -> None:
    """An all-reduce of 4 bytes on nodes 0 and 1 takes 4 s; a transfer from 0 to 2 waits, one from 2 to 3 does
    not.
    """
    network = Network(wide(4, 1))
    reduce = network.collective("all_reduce", (0, 1), 4.0)
    assert ends(reduce, network.point_to_point(0, 2, 5.0), network.point_to_point(2, 3, 5.0)) == [4, 9, 5]


def test_replicas_of_tensor_parallel_groups_share_their_nodes_adapter() -> None:
    """Two nodes of two, a model split over each: two all-reduces of 2 bytes between the nodes share 1 byte/s.

    Backward ends at 1 + 2; then 2 x (2 x 1/2 x 2) s. With a rail for each device they do not meet.
    """
    model = chain(1, parameter_bytes=4.0)
    slots = [tuple(Slot(kind, number, 0) for kind in "FB") for number in range(2)]
    plan = ParallelPlan(
        batch=2,
        micro_batches=2,
        mesh=(("data", 2), ("tensor", 2)),
        stages=(Stage(0, 1, (0, 1)),),
        workers=(Worker((0, 1), slots[0]), Worker((2, 3), slots[1])),
        shardings=(Sharding(0, "column", 1, 2, 1),),
    )
    shared, railed = wide(2, 2), wide(2, 2, network=2.0, rails=2)
    assert simulate(plan, estimate(model, shared)).step_time == 3 + 4
    assert simulate(plan, estimate(model, railed)).step_time == 3 + 2


def test_a_straggler_is_slow_itself_and_everybody_waits_for_it() -> None:
    model, hardware = chain(2), replace(cluster(1, 3), stragglers=((1, 1.5),))
    asked = estimate(model, hardware)
    found = simulate(DataParallel().place(model, hardware, 3, asked), asked)
    assert found.step_time == 6 * 1.5
    assert [lane.events[-1][1] for lane in found.lanes] == [6, 9, 6]
    assert asked.slowdown(1) == 1, "planners are not told"


def test_a_mixed_cluster_is_slow_where_its_slow_devices_are() -> None:
    """A device of half the rate computes its stage in twice the time: spans 3 x 2 for the quick, 6 x 2 for
    the slow.
    """
    quick = cluster(1, 1)
    node = quick.node
    slow = replace(node, device=replace(node.device, compute_efficiency=node.device.compute_efficiency / 2))
    mixed = replace(quick, groups=(*quick.groups, replace(quick.groups[0], node=slow)))
    model = chain(2)
    asked = estimate(model, mixed)
    found = simulate(GPipe(micro_batches=2).place(model, mixed, 2, asked), asked)
    busy = [sum(end - start for start, end, _ in lane.events[:4]) for lane in found.lanes]
    assert busy == [6, 12]


@given(
    policy=st.sampled_from(
        [DataParallel(bucket_bytes=40), Zero(stage=3, bucket_bytes=40), GPipe(stages=4, micro_batches=4)]
    ),
    nodes=st.sampled_from([1, 2, 4]),
    rails=st.sampled_from([1, 2]),
    taper=st.sampled_from([None, 1.0, 3.0]),
    speed=st.floats(0.5, 50),
    more=st.floats(1, 10),
)
@settings(max_examples=60)
def test_more_bandwidth_is_never_slower_and_no_step_is_shorter_than_its_work(
    policy: DataParallel, nodes: int, rails: int, taper: float | None, speed: float, more: float
) -> None:
    switch = None if taper is None else Switch(1, taper)

    def run(bandwidth: float) -> float:
        link = Link("link", bandwidth, 0.01, True, "test")
        hardware = cluster(nodes, 4, link=link, network=replace(link, bandwidth=bandwidth / 4))
        hardware = replace(hardware, rails=rails, switch=switch)
        model = chain(4, parameter_bytes=16.0, output_bytes=8.0)
        asked = estimate(model, hardware)
        found = simulate(policy.place(model, hardware, 4 * hardware.device_count, asked), asked)
        busy = [sum(end - start for start, end, _ in lane.events) for lane in found.lanes]
        assert found.step_time >= max(busy) - 1e-9
        assert found.exposed_communication_time >= 0
        return found.step_time

    assert run(speed * more) <= run(speed) * (1 + 1e-9)


CLUSTER = {"nodes": 32, "devices_per_node": 8, "device": "a100-80g", "network": "ib-200g"}


def test_a_spec_names_rails_switch_and_stragglers_and_its_json_shows_them() -> None:
    fabric = {"rails": 8, "switch": {"nodes": 16, "oversubscription": 2.0}, "stragglers": {"3": 1.5}}
    hardware = resolve({"cluster": {**CLUSTER, **fabric}})
    assert (hardware.network.bandwidth, hardware.rails) == (200e9, 8)
    assert hardware.switch == Switch(16, 2.0)
    shown = hardware.to_json()
    assert shown["rails"] == 8
    assert shown["switch"] == {"nodes": 16, "oversubscription": 2.0, "latency": 0.0}
    assert shown["stragglers"] == {"3": 1.5}
    plain = resolve({"cluster": CLUSTER})
    assert (plain.rails, plain.switch, plain.stragglers) == (1, None, ())


def test_the_second_groups_stragglers_count_from_its_first_device() -> None:
    mixed = resolve([CLUSTER, {**CLUSTER, "nodes": 1, "stragglers": {"0": 2}}])
    assert mixed.stragglers == ((256, 2.0),)


def test_collectives_inside_a_node_do_not_wait_for_the_network() -> None:
    """A tensor-parallel sum of 1 s runs while the replicas' sum of 100 s is in flight between the nodes."""
    two = Link("two rails", 2.0, 0.0, True, "test")
    network = Network(replace(cluster(2, 2, link=BYTE_A_SECOND, network=two), rails=2))
    between = network.groups("all_reduce", ((0, 2), (1, 3)), 100.0)
    inside = network.groups("all_reduce", ((0, 1),), 1.0)
    assert ends(between, inside) == [100, 1]
