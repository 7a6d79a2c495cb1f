"""Collective costs: the closed forms, worked by hand."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.hardware import collectives
from experiments.hardware.parts import Link
from tests.experiments.hardware import closed_forms

WIRE = Link("wire", bandwidth=1e10, latency=10e-6, duplex=True, source="a test: alpha 10 us, beta 0.1 ns/B")
ROPE = dataclasses.replace(WIRE, name="rope", duplex=False)

RANKS = st.integers(1, 64)
SIZES = st.floats(0, 1e12)
LINKS = st.sampled_from([WIRE, ROPE])
COSTS = st.sampled_from(
    [
        closed_forms.ring_reduce_scatter,
        collectives.ring_all_reduce,
        closed_forms.tree_broadcast,
        closed_forms.tree_scatter,
        collectives.tree_all_reduce,
        closed_forms.doubling_all_reduce,
        closed_forms.halving_doubling_all_reduce,
        closed_forms.pairwise_all_to_all,
        closed_forms.bruck_all_to_all,
    ]
)


@pytest.mark.parametrize(
    ("size", "ring", "doubling", "halving_doubling"),
    [(1e3, 1.40175e-4, 3.03e-5, 6.0175e-5), (10e6, 1.89e-3, 3.03e-3, 1.81e-3)],
)
def test_eight_ranks_all_reduce_a_kilobyte_and_ten_megabytes(size, ring, doubling, halving_doubling):
    assert collectives.ring_all_reduce(WIRE, 8, size) == pytest.approx(ring)
    assert closed_forms.doubling_all_reduce(WIRE, 8, size) == pytest.approx(doubling)
    assert closed_forms.halving_doubling_all_reduce(WIRE, 8, size) == pytest.approx(halving_doubling)
    assert collectives.tree_all_reduce(WIRE, 8, size) == pytest.approx(2 * doubling)


def test_other_collectives_of_eight_ranks():
    assert collectives.point_to_point(WIRE, 1e6) == pytest.approx(10e-6 + 100e-6)
    assert closed_forms.tree_broadcast(WIRE, 8, 1e6) == pytest.approx(3 * 110e-6)
    assert closed_forms.tree_scatter(WIRE, 8, 1e6) == pytest.approx(3 * 10e-6 + 7 / 8 * 100e-6)
    assert closed_forms.pairwise_all_to_all(WIRE, 8, 1e6) == pytest.approx(7 * 10e-6 + 7 / 8 * 100e-6)
    assert closed_forms.bruck_all_to_all(WIRE, 8, 1e6) == pytest.approx(3 * (10e-6 + 50e-6))


def test_a_count_that_is_no_power_of_two_folds_in_and_out():
    assert closed_forms.depth(5) == 3
    assert closed_forms.doubling_traffic(5, 1e6) == collectives.Traffic(4, 4e6, True)
    assert closed_forms.halving_doubling_traffic(5, 1e6) == collectives.Traffic(6, 3.5e6, True)


def test_a_ring_on_a_shared_line_takes_twice_the_bytes_and_a_tree_does_not():
    ring = collectives.ring_all_reduce(WIRE, 8, 1e9) - 14 * WIRE.latency
    assert collectives.ring_all_reduce(ROPE, 8, 1e9) - 14 * ROPE.latency == pytest.approx(2 * ring)
    assert collectives.tree_all_reduce(ROPE, 8, 1e9) == collectives.tree_all_reduce(WIRE, 8, 1e9)


def test_two_levels_are_three_phases():
    """2 nodes x 4 devices, 8 MB: 2 x 3/4 x 8 MB inside at 0.1 ns/B, then 4 all-reduces of 2 MB share one
    adapter.
    """
    slow = dataclasses.replace(WIRE, bandwidth=1e9, latency=20e-6)
    inside = 6 * 10e-6 + 12e6 * 0.1e-9
    between = 2 * 20e-6 + 4 * 2e6 * 1e-9
    assert closed_forms.hierarchical_all_reduce(WIRE, slow, 2, 4, 8e6) == pytest.approx(inside + between)
    assert closed_forms.hierarchical_all_reduce(WIRE, slow, 1, 4, 8e6) == collectives.ring_all_reduce(
        WIRE, 4, 8e6
    )
    assert closed_forms.hierarchical_all_reduce(WIRE, slow, 8, 1, 8e6) == collectives.ring_all_reduce(
        slow, 8, 8e6
    )


def test_exchanging_inside_the_node_first_saves_messages_to_the_network():
    """8 nodes x 8 devices, 1 MB each: 7 messages of 128 kB to the network instead of 56 of 16 kB."""
    two_level = closed_forms.hierarchical_all_to_all(WIRE, WIRE, 8, 8, 1e6)
    inside, messages, sent = 7 * 10e-6 + 7 / 8 * 1e6 * 1e-10, 7 * 10e-6, 7 * 8 * 125e3 * 1e-10
    assert two_level == pytest.approx(inside + messages + sent)


@pytest.mark.parametrize(("ranks", "size"), [(0, 1.0), (2, -1.0), (2, float("nan")), (2, float("inf"))])
def test_nobody_and_impossible_sizes_are_refused(ranks, size):
    with pytest.raises(ValueError, match="at least one rank"):
        collectives.ring_all_reduce(WIRE, ranks, size)


@given(LINKS, COSTS, SIZES)
def test_alone_there_is_nothing_to_do(link, cost, size):
    assert cost(link, 1, size) == 0


@given(LINKS, COSTS, RANKS, SIZES, st.floats(0, 1e12))
def test_more_bytes_never_take_less_time(link, cost, ranks, size, more):
    assert cost(link, ranks, size + more) >= cost(link, ranks, size)


@given(LINKS, RANKS, SIZES)
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(link, ranks, size):
    half = closed_forms.ring_reduce_scatter(link, ranks, size)
    assert collectives.ring_all_reduce(link, ranks, size) == pytest.approx(2 * half)


@given(RANKS, SIZES)
def test_no_all_reduce_sends_less_than_the_rings_bytes(ranks, size):
    least = 2 * (ranks - 1) / ranks * size
    assert collectives.ring_all_reduce_traffic(ranks, size).sent == pytest.approx(least)
    for traffic in (
        collectives.tree_all_reduce_traffic,
        closed_forms.doubling_traffic,
        closed_forms.halving_doubling_traffic,
    ):
        assert traffic(ranks, size).sent >= least * (1 - 1e-12)


@given(LINKS, st.integers(2, 512))
def test_ring_and_tree_cross_where_the_formula_says(link, ranks):
    crossing = collectives.ring_beats_tree_from(link, ranks)
    above, below = 1.01 * crossing + 1, 0.99 * crossing - 1
    assert collectives.ring_all_reduce(link, ranks, above) <= collectives.tree_all_reduce(
        link, ranks, above
    ) * (1 + 1e-9)
    if below > 0:
        assert collectives.ring_all_reduce(link, ranks, below) > collectives.tree_all_reduce(
            link, ranks, below
        )
