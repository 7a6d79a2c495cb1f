"""Devices that share a host link: fair shares, turns by token, and what each of them sees."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core.errors import BadInput, Infeasible
from experiments.memory.interface import CopyRate, DemandPaging, MemoryPlan, Offload, OnHost, Prefetch
from experiments.memory.policies.swap_all import SwapAll
from experiments.memory.simulator import Simulator, run_shared
from tests.experiments.memory.steps import ENDLESS, MS, machine, make_step, plan_of
from tests.experiments.memory.test_simulator import steps

GB = 10**9


def one_tensor_out(at: int):
    """1.2 GB leave when op ``at`` begins; ten ops of 100 ms."""
    rows = [("make", "forward", 100 * MS, [], ["t"])]
    rows += [(f"op{i}", "forward", 100 * MS, [], []) for i in range(1, 9)]
    step = make_step([*rows, ("end", "backward", 100 * MS, ["t"], [])], {"t": 12 * GB // 10})
    return step, MemoryPlan((Offload(at, 0, at - 1), Prefetch(9, 0)))


def spans(simulation, way="out"):
    return [(round(start, 9), round(end, 9)) for start, end in simulation.transfers[way]]


def test_two_devices_at_once_both_end_at_200_ms_and_apart_at_100_ms_each():
    step, together = one_tensor_out(1)
    _, later = one_tensor_out(2)
    on = machine(ENDLESS, 12 * GB)
    fair = run_shared(step, [together, together], on)
    assert [spans(one) for one in fair] == [[(0.1, 0.3)], [(0.1, 0.3)]]
    apart = run_shared(step, [together, later], on)
    assert [spans(one) for one in apart] == [[(0.1, 0.2)], [(0.2, 0.3)]]


def test_a_transfer_that_joins_halves_the_rate_of_the_one_under_way():
    # 0.1-0.15 alone (0.6 GB), then both at 6 GB/s: the first has 0.6 GB left, until 0.25; then the second is
    # alone.
    rows = [
        ("make", "forward", 0.1, [], ["t"]),
        ("a", "forward", 0.05, [], []),
        ("b", "forward", 0.85, [], []),
    ]
    step = make_step([*rows, ("end", "backward", 0.1, ["t"], [])], {"t": 12 * GB // 10})
    plans = [MemoryPlan((Offload(at, 0, at - 1), Prefetch(3, 0))) for at in (1, 2)]
    first, second = run_shared(step, plans, machine(ENDLESS, 12 * GB))
    assert spans(first) == [(0.1, 0.25)] and spans(second) == [(0.15, 0.3)]


def test_with_tokens_one_device_sends_at_a_time_and_the_one_that_waited_longest_is_next():
    rows = [
        ("make", "forward", 1.0, [], ["s", "t"]),
        ("work", "forward", 9.0, [], []),
        ("end", "backward", 1.0, ["s", "t"], []),
    ]
    step = make_step(rows, {"s": 1, "t": 1})
    plan = MemoryPlan((Offload(1, 0, 0), Offload(1, 1, 0), Prefetch(2, 0), Prefetch(2, 1)))
    first, second = run_shared(step, [plan, plan], machine(ENDLESS, 1.0), "turns")
    assert spans(first) == [(1, 2), (3, 4)] and spans(second) == [(2, 3), (4, 5)]
    assert spans(first, "back") == [(10, 11), (12, 13)] and spans(second, "back") == [(11, 12), (13, 14)]
    assert (first.step_time, second.step_time) == (14, 15)
    fair = run_shared(step, [plan, plan], machine(ENDLESS, 1.0))
    assert [spans(one) for one in fair] == [[(1, 3), (3, 5)]] * 2
    assert [one.step_time for one in fair] == [15, 15]


def test_without_duplex_one_direction_waits_for_the_other():
    rows = [
        ("make", "forward", 1.0, [], ["t"]),
        ("work", "forward", 1.0, [], []),
        ("end", "backward", 1.0, ["t"], []),
    ]
    step = make_step(rows, {"t": 2})
    early, late = (
        MemoryPlan((Offload(1, 0, 0), Prefetch(2, 0))),
        MemoryPlan((Offload(2, 0, 1), Prefetch(2, 0))),
    )
    on = machine(ENDLESS, 1.0, duplex=False)
    first, second = run_shared(step, [early, late], on)
    # Alone until 2 the first has sent one byte of two; then both directions of both share: four bytes, none
    # alone until the first is back at 8.
    assert spans(first) == [(1, 4)] and spans(second) == [(2, 6)]
    assert spans(first, "back") == [(4, 8)] and spans(second, "back") == [(6, 9)]
    turns = run_shared(step, [early, late], on, "turns")
    assert [spans(one) for one in turns] == [[(1, 3)], [(3, 5)]]
    assert [spans(one, "back") for one in turns] == [[(5, 7)], [(7, 9)]]


def test_what_cannot_be_shared_is_refused():
    step, plan = one_tensor_out(1)
    for wrong, on in (
        (MemoryPlan(space=DemandPaging()), machine()),
        (MemoryPlan((OnHost(1, 1.0),)), machine()),
        (plan, machine(synchronous=True)),
    ):
        with pytest.raises(BadInput, match="asks for"):
            run_shared(step, [wrong], on)
    with pytest.raises(BadInput, match="fair or turns"):
        run_shared(step, [plan], machine(), "lottery")


@settings(max_examples=100)
@given(
    steps(),
    st.sampled_from([0, 1, 3]),
    st.integers(1, 200),
    st.sampled_from([0.5, 8.0, 1e6]),
    st.booleans(),
    st.sampled_from([0.0, 0.25]),
    st.sampled_from(["fair", "turns"]),
)
def test_one_device_alone_sees_an_ordinary_link_and_equal_ones_equal_parts(
    step, ahead, capacity, bandwidth, duplex, latency, discipline
):
    rate = CopyRate(bandwidth, latency)
    on = machine(capacity, out=rate, back=rate, duplex=duplex)
    plan = plan_of(SwapAll(ahead=ahead), step, on)
    try:
        single = Simulator(step, on).run(plan)
    except Infeasible:
        with pytest.raises(Infeasible):
            run_shared(step, [plan], on, discipline)
        return
    (alone,) = run_shared(step, [plan], on, discipline)
    assert alone.step_time == pytest.approx(single.step_time, rel=1e-9)
    assert alone.moved_bytes == single.moved_bytes and alone.peak_bytes == single.peak_bytes
    pair = run_shared(step, [plan, plan], on, discipline)
    half = Simulator(step, machine(capacity, out=rate, back=rate, duplex=duplex, sharers=2)).run(plan)
    if discipline == "fair" and latency == 0:
        assert [one.step_time for one in pair] == pytest.approx([half.step_time] * 2, rel=1e-9)
    for one in pair:
        assert one.step_time >= single.step_time * (1 - 1e-9) and one.peak_bytes <= capacity
    busy = sum(end - start for one in pair for way in ("out", "back") for start, end in one.transfers[way])
    assert sum(one.moved_bytes["out"] + one.moved_bytes["back"] for one in pair) <= busy * bandwidth * (
        1 + 1e-9
    )
