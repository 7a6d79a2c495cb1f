"""Addresses laid out ahead of time and handed out one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.memory.planning.offsets import (
    Stay,
    load_bound,
    online,
    pack,
    packed_bytes,
    pool_bytes,
    round_up,
    stays_of,
)
from tests.experiments.memory.steps import chain

KIB = 1024
P, Q, R = Stay(0, 1 * KIB, 0, 2), Stay(1, 2 * KIB, 0, 4), Stay(2, 3 * KIB, 2, 4)


def test_in_the_order_of_arrival_first_fit_needs_6_and_sorted_by_size_5():
    # p lies at 0, q above it; r does not fit into the hole that p leaves.
    assert pool_bytes(online([P, Q, R], 100 * KIB, "first_fit")) == 6 * KIB
    assert packed_bytes([P, Q, R], pack([P, Q, R], "first_fit")) == 5 * KIB == load_bound([P, Q, R], 4)


def test_what_lives_on_from_step_to_step_lies_at_the_bottom():
    assert pack([P, Q, R], "best_fit")[R.tensor] == 0
    assert pack([P, Q, R], "best_fit", fixed={1})[Q.tensor] == 0


def test_a_tensor_that_returns_keeps_its_address():
    # a is away for ops 1-2; b, there meanwhile, may lie over it, c, which meets the second stay, may not.
    stays = [Stay(0, KIB, 0, 1), Stay(0, KIB, 3, 5), Stay(1, KIB, 1, 3), Stay(2, KIB, 4, 6)]
    addresses = pack(stays, "first_fit")
    assert addresses == {0: 0, 1: 0, 2: KIB}
    assert packed_bytes(stays, addresses) == 2 * KIB


def test_what_finds_no_hole_reaches_beyond_the_end():
    addresses = online([P, Q, R], 5 * KIB, "first_fit")
    assert addresses[R] == 3 * KIB and pool_bytes(addresses) == 6 * KIB


def test_a_tensor_that_was_away_stays_twice():
    step = chain(4)
    a0 = step.tensors.name.index("a0")
    found = [(stay.start, stay.end) for stay in stays_of(step, {a0: [(2, 8)]}) if stay.tensor == a0]
    assert found == [(0, 2), (8, step.last_use[a0] + 1)]


stays = st.lists(
    st.tuples(st.integers(1, 9), st.integers(0, 12), st.integers(1, 6)).map(lambda x: x),
    min_size=1,
    max_size=20,
)


@given(stays, st.sampled_from(["first_fit", "best_fit"]))
def test_stays_that_overlap_in_time_never_overlap_in_address(rows, fit):
    lives = [Stay(i, size * 512, start, start + length) for i, (size, start, length) in enumerate(rows)]
    lives.sort(key=lambda stay: (stay.start, stay.tensor))
    ahead = pack(lives, fit)
    for addresses in ({stay: ahead[stay.tensor] for stay in lives}, online(lives, 2**20, fit)):
        for one, at in addresses.items():
            for other, there in addresses.items():
                if one is not other and one.start < other.end and other.start < one.end:
                    assert at + round_up(one.bytes) <= there or there + round_up(other.bytes) <= at
        assert pool_bytes(addresses) >= load_bound(lives, 20)


def test_a_hole_is_joined_with_its_neighbors():
    a, b, c = Stay(0, 512, 0, 1), Stay(1, 512, 0, 1), Stay(2, 1024, 1, 2)
    assert online([a, b, c], 1024, "best_fit")[c] == 0


@pytest.mark.parametrize("fit", ["first_fit", "best_fit"])
def test_the_smallest_hole_is_taken_only_by_best_fit(fit):
    # Holes of 4 and 2 granules; a granule goes to the first or to the smaller one.
    rows = [(4, 0, 1), (1, 0, 9), (2, 0, 1), (1, 0, 9), (1, 1, 1)]
    lives = [Stay(i, size * 512, start, start + length) for i, (size, start, length) in enumerate(rows)]
    assert online(lives, 8 * 512, fit)[lives[-1]] == (0 if fit == "first_fit" else 5 * 512)
