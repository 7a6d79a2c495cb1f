"""Themis: finish-time fairness and the auction of leases."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from experiments.cluster.interface import Machines
from experiments.cluster.planning.performance import performance_of
from experiments.cluster.policies.themis import Themis, fairness
from experiments.cluster.policies.themis.auction import Bid, hold
from experiments.cluster.simulator import figures, simulate
from tests.experiments.cluster.traces import jobs

worths = st.floats(0.05, 20.0)
bids = st.dictionaries(st.sampled_from([1, 2, 4]), worths, min_size=1).map(lambda bid: {1: 0.04, **bid})
auctions = st.lists(bids, min_size=1, max_size=6)


def test_rho_of_the_card() -> None:
    """Two seconds passed, 10 of work on 2 GPUs: 7 s; one of 4 apps on 8 GPUs takes 5 s: 1.4."""
    assert fairness(elapsed=2, left=10, speed=2, work=10, alone=2) == pytest.approx(1.4)


def best_product(bids: list[Bid], devices: int) -> float:
    """By trying everything."""
    found = [
        math.prod(bid[size] for bid, size in zip(bids, sizes, strict=True))
        for sizes in itertools.product(*bids)
        if sum(sizes) <= devices
    ]
    return max(found)


@settings(max_examples=60)
@given(bids=auctions, more=st.integers(0, 6))
def test_winners_have_the_largest_product_and_keep_a_part_in_0_to_1(bids: list[Bid], more: int) -> None:
    devices = len(bids) + more
    outcome = hold(bids, devices)
    assert sum(outcome.devices) <= devices
    product = math.prod(bid[size] for bid, size in zip(bids, outcome.devices, strict=True))
    assert product == pytest.approx(best_product(bids, devices))
    for place, kept in enumerate(outcome.kept):
        assert 0 < kept <= 1
        others = bids[:place] + bids[place + 1 :]
        mine = bids[place][outcome.devices[place]]
        assert kept == pytest.approx(product / mine / best_product(others, devices))


@settings(max_examples=100)
@given(bids=auctions, more=st.integers(0, 6), false=bids, who=st.integers(0, 5))
def test_a_false_bid_never_gains_in_expectation(bids: list[Bid], more: int, false: Bid, who: int) -> None:
    who, devices = who % len(bids), len(bids) + more
    true = bids[who]
    assume(set(false) <= set(true))
    expected = gain(bids, devices, who, true)
    assert gain([*bids[:who], false, *bids[who + 1 :]], devices, who, true) <= expected * (1 + 1e-9)


def gain(bids: list[Bid], devices: int, who: int, true: Bid) -> float:
    """What a bidder expects of an auction, by what devices are really worth to it."""
    outcome = hold(bids, devices)
    return outcome.kept[who] * true[outcome.devices[who]]


def test_alone_everything_is_kept() -> None:
    assert hold([{1: 1.0, 2: 3.0}], 4).kept == (1.0,)
    assert hold([{1: 1.0, 2: 2.0}, {1: 1.0, 2: 2.0}], 4) == hold([{1: 1.0, 2: 2.0}] * 2, 5)


def test_two_apps_take_turns_on_what_one_could_hold() -> None:
    """Leases end: the app that came later is not kept out until the first one is done."""
    trace, nodes = jobs((0, 1, 1000), (0, 1, 1000)), Machines.of_sizes([1])
    plan = simulate(trace, nodes, Themis(lease=50.0), performance_of(trace, nodes))
    first = {job: min(one.start for one in plan.executions if one.gang.job == job) for job in (0, 1)}
    assert max(first.values()) < 500
    assert figures(plan, trace, nodes)["unfinished_jobs"] == 0


def test_with_room_for_all_everybody_runs_at_once() -> None:
    trace, nodes = jobs((0, 2, 10), (0, 4, 10), (1, 2, 10)), Machines.of_sizes([8])
    plan = simulate(trace, nodes, Themis(), performance_of(trace, nodes))
    assert {one.gang.job: one.end for one in plan.executions} == {0: 10, 1: 10, 2: 11}
