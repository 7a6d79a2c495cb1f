"""Collectives on a topology: the closed forms where it is uniform, and what rails, leaves and mixed links
change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from experiments.hardware import Hardware, Link, NodeGroup, Switch, collectives, resolve
from experiments.hardware.parts import USUAL_KERNELS
from experiments.hardware.patterns import PATTERNS
from experiments.hardware.topology import Cost, Topology
from tests.experiments.hardware import closed_forms

FAST = Link("fast", bandwidth=8.0, latency=0.25, duplex=True, source="test")
SLOW = Link("slow", bandwidth=1.0, latency=2.0, duplex=True, source="test")
HALF = dataclasses.replace(SLOW, duplex=False)

CLOSED: dict[tuple[str, str], Callable[[Link, int, float], float]] = {
    ("all_reduce", "ring"): collectives.ring_all_reduce,
    ("all_reduce", "tree"): collectives.tree_all_reduce,
    ("all_reduce", "doubling"): closed_forms.doubling_all_reduce,
    ("all_reduce", "halving_doubling"): closed_forms.halving_doubling_all_reduce,
    ("reduce_scatter", "ring"): closed_forms.ring_reduce_scatter,
    ("all_gather", "ring"): closed_forms.ring_reduce_scatter,
    ("all_to_all", "pairwise"): closed_forms.pairwise_all_to_all,
    ("permute", "ring"): closed_forms.permute,
    ("broadcast", "tree"): closed_forms.tree_broadcast,
}


def machines(
    nodes: int,
    per_node: int,
    *,
    link: Link = FAST,
    network: Link = SLOW,
    rails: int = 1,
    switch: Switch | None = None,
) -> Hardware:
    device = dataclasses.replace(resolve("a100-80g").device, kernels=USUAL_KERNELS)
    node = dataclasses.replace(resolve("a100-80g").node, device=device, device_count=per_node, link=link)
    return Hardware("test", (NodeGroup(nodes, node),), network, rails, switch)


def cost(hardware: Hardware, kind: str, algorithm: str, *groups: range | tuple[int, ...]) -> Cost:
    topology = Topology(hardware)
    table = np.array([tuple(group) for group in groups])
    return topology.cost(PATTERNS[kind][algorithm](table, topology))


@given(
    st.sampled_from(sorted(CLOSED)),
    st.integers(1, 17),
    st.floats(0, 1e9),
    st.sampled_from([SLOW, HALF]),
    st.booleans(),
)
@settings(max_examples=150)
def test_alone_on_equal_links_the_closed_forms_hold(
    named: tuple[str, str], ranks: int, size: float, link: Link, inside: bool
) -> None:
    """Devices of one node, or nodes of one device. (Where both ways are one, the closed forms count folds
    twice.)
    """
    assume(link.duplex or "doubling" not in named[1] or ranks & (ranks - 1) == 0)
    hardware = machines(1, ranks, link=link) if inside else machines(ranks, 1, network=link)
    found = cost(hardware, *named, range(ranks)).seconds(size)
    assert found == pytest.approx(CLOSED[named](link, ranks, size))


@given(st.integers(1, 5), st.integers(1, 5), st.floats(0, 1e9))
@settings(max_examples=60)
def test_two_levels_take_the_closed_forms_three_phases(nodes: int, each: int, size: float) -> None:
    hardware, ranks = machines(nodes, each), range(nodes * each)
    reduced = cost(hardware, "all_reduce", "hierarchical", ranks).seconds(size)
    assert reduced == pytest.approx(closed_forms.hierarchical_all_reduce(FAST, SLOW, nodes, each, size))
    exchanged = cost(hardware, "all_to_all", "hierarchical", ranks).seconds(size)
    assert exchanged == pytest.approx(closed_forms.hierarchical_all_to_all(FAST, SLOW, nodes, each, size))


KINDS = [(kind, name) for kind, named in PATTERNS.items() for name in named]


@given(st.sampled_from(KINDS), st.sampled_from([1, 2, 4]), st.integers(1, 4))
@settings(max_examples=60)
def test_an_all_reduce_sends_no_less_than_its_two_halves(
    named: tuple[str, str], each: int, nodes: int
) -> None:
    """2(n-1)/n of the vector from some rank at least; (n-1)/n for a half; nothing from one rank alone."""
    ranks = nodes * each
    found = cost(machines(nodes, each), *named, range(ranks))
    if ranks == 1:
        assert found == Cost(0.0, 0.0, 0.0, {})
    elif named[0] in ("all_reduce", "reduce_scatter", "all_gather"):
        halves = 2 if named[0] == "all_reduce" else 1
        assert found.sent >= halves * (ranks - 1) / ranks - 1e-12


def test_a_tree_crosses_the_network_in_its_first_rounds_only() -> None:
    """2 nodes of 4: one round between nodes, two inside; there and back."""
    found = cost(machines(2, 4), "all_reduce", "tree", range(8)).seconds(16.0)
    assert found == 2 * ((2 + 16) + 2 * (0.25 + 16 / 8))


def test_halves_are_exchanged_inside_the_node_first() -> None:
    """2 nodes of 2, 16 bytes: 8 inside, then 4 from each of two devices over one adapter; there and back."""
    found = cost(machines(2, 2), "all_reduce", "halving_doubling", range(4)).seconds(16.0)
    assert found == 2 * ((0.25 + 8 / 8) + (2 + 2 * 4))


@pytest.mark.parametrize("ranks", [2, 3, 7, 15, 31, 100])
def test_two_trees_start_few_transfers_and_send_hardly_more_than_a_ring(ranks: int) -> None:
    """2 floor(log2 n) starts; up and down every rank sends half of the vector in either tree, or twice inside
    one.
    """
    found = cost(machines(ranks, 1), "all_reduce", "double_tree", range(ranks))
    assert found.latency == 2 * (ranks.bit_length() - 1) * SLOW.latency
    assert found.slope <= 3.0
    if ranks + 1 == 1 << ranks.bit_length():
        assert found.slope == 2.0, "a full tree: who has two children in one has none in the other"


@given(
    st.sampled_from(["ring", "hierarchical", "halving_doubling"]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([None, Switch(1, 3.0), Switch(2, 2.0, 0.5)]),
)
@settings(max_examples=80)
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather_on_any_fabric(
    algorithm: str, each: int, nodes: int, rails: int, switch: Switch | None
) -> None:
    hardware = machines(nodes, each, rails=min(rails, each), switch=switch)
    whole, scatter, gather = (
        cost(hardware, kind, algorithm, range(nodes * each))
        for kind in ("all_reduce", "reduce_scatter", "all_gather")
    )
    assert whole.latency == pytest.approx(scatter.latency + gather.latency)
    assert whole.slope == pytest.approx(scatter.slope + gather.slope)
    assert whole.sent == pytest.approx(scatter.sent + gather.sent)


def test_rings_use_every_rail() -> None:
    """Two nodes of four, 8 bytes/s: one adapter, or four rails of a quarter, take the same with
    four rings.
    """
    network = dataclasses.replace(SLOW, bandwidth=8.0)
    one, four = machines(2, 4, network=network), machines(2, 4, network=network, rails=4)
    whole = cost(one, "all_reduce", "ring", range(8))
    railed = cost(four, "all_reduce", "ring", range(8))
    assert railed.seconds(64.0) == pytest.approx(whole.seconds(64.0))
    adapters = [share for channel, share in railed.loads.items() if channel >= 16]
    assert adapters == pytest.approx([2 * 7 / 8 / 4] * 16)
    lone = cost(four, "all_reduce", "ring", (0, 4))
    assert lone.slope == pytest.approx(1.0 / 2), "one device of each node has a quarter of the network"


@pytest.mark.parametrize(("kind", "laps"), [("all_gather", 1), ("reduce_scatter", 1), ("all_reduce", 2)])
def test_a_ring_starts_once_between_neighboring_nodes_and_at_every_hop_inside(kind: str, laps: int) -> None:
    """Three nodes of four: 11 hops a lap, 2 of them of 2 s between nodes and 9 of 0.25 s inside."""
    hardware = machines(3, 4, rails=4)
    assert cost(hardware, kind, "ring", range(12)).latency == laps * (2 * 2.0 + 9 * 0.25)
    assert cost(hardware, kind, "ring", (0, 4, 8), (1, 5, 9)).latency == laps * 2 * 2.0
    assert cost(hardware, kind, "ring", range(4), range(4, 8)).latency == laps * 3 * 0.25


def test_a_ring_over_nodes_steps_no_faster_than_its_hosts_and_one_in_a_node_does() -> None:
    """A DGX A100's EPYCs take 6 us for a step, a DGX H100's Xeons 3; NVLink starts in 3.4."""
    for name, inside in (("dgx-a100", 6e-6), ("dgx-h100", 3.4e-6)):
        hardware = resolve({"nodes": 2, "node": name})
        assert cost(hardware, "all_gather", "ring", range(16)).latency == pytest.approx(14e-6 + 14 * inside)
        assert cost(hardware, "all_gather", "ring", range(8)).latency == pytest.approx(7 * 3.4e-6)


def test_a_device_reaches_another_rail_over_its_node_link() -> None:
    """Device 0 to device 5 of the other node: by 0's node link to device 1, whose rail leads to 5."""
    hardware = machines(2, 4, rails=4)
    found = cost(hardware, "permute", "ring", (0, 5))
    there, back = {0, 3, 16 + 2, 24 + 3}, {10, 9, 24, 16 + 1}
    assert found.loads == dict.fromkeys(sorted(there | back), 1.0)
    straight = cost(hardware, "permute", "ring", (0, 4))
    assert straight.loads == {16: 1.0, 17: 1.0, 24: 1.0, 25: 1.0}


@pytest.mark.parametrize(("taper", "factor"), [(1.0, 1), (2.0, 2), (4.0, 4)])
def test_oversubscription_slows_an_exchange_between_leaves_and_nothing_under_one(
    taper: float, factor: float
) -> None:
    """Four nodes of one device, two to a leaf: pairs across the leaves use both uplinks fully."""
    network = dataclasses.replace(SLOW, latency=0.0)
    hardware = machines(4, 1, network=network, switch=Switch(2, taper, latency=1.0))
    across = cost(hardware, "all_to_all", "pairwise", (0, 2), (1, 3))
    assert across.seconds(8.0) == 1 + factor * 4
    under = cost(hardware, "all_to_all", "pairwise", (0, 1), (2, 3))
    assert under.seconds(8.0) == 4


def test_a_mixed_group_goes_at_the_pace_of_its_slowest_link() -> None:
    """Two nodes of two, one with node links of 8 bytes/s, one of 1: rings inside each are 8 times apart."""
    quick, slow = machines(1, 2), machines(1, 2, link=SLOW)
    mixed = Hardware("mixed", (*quick.groups, *slow.groups), FAST)
    assert cost(mixed, "permute", "ring", (0, 1)).seconds(8.0) == 0.25 + 1
    assert cost(mixed, "permute", "ring", (2, 3)).seconds(8.0) == 2 + 8
    assert cost(mixed, "permute", "ring", (0, 1), (2, 3)).seconds(8.0) == 2 + 8


def test_many_ranks_exchange_what_few_do_in_chunks() -> None:
    """1,024 ranks on 128 nodes: a node sends 8 x 1016/1024 of each rank's bytes."""
    found = cost(machines(128, 8), "all_to_all", "pairwise", range(1024))
    assert found.slope == pytest.approx(8 * 1016 / 1024)
    assert found.latency == 1023 * 2.0
