"""LRU swapping: which of three tensors goes, what comes back, and the law that more memory never
moves more.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.core.errors import Infeasible
from experiments.memory.interface import Eviction, Resident
from experiments.memory.policies.lru_swap import LruSwap
from experiments.memory.simulator import MemorySimulation, Simulator
from experiments.workloads.step import Step
from tests.experiments.memory.steps import Row, machine, make_step, plan_of

GIVEN = [Resident(0, 4, 1.0, 0.0, 0.0), Resident(1, 2, 3.0, 0.0, 0.0), Resident(2, 0, 0.0, 0.0, 0.0)]


def simulated(step: Step, capacity: int, iterations: int = 1) -> MemorySimulation:
    policy, on = LruSwap(), machine(capacity, bandwidth=1.0)
    return Simulator(step, on).run(plan_of(policy, step, on), policy, iterations)


def evicted(needed: int, resident: list[Resident]) -> list[int]:
    return [eviction.tensor for eviction in LruSwap().evict(needed, resident, 9.0)]


def test_the_longest_unused_go_until_there_is_enough_and_what_has_no_bytes_stays() -> None:
    assert evicted(3, GIVEN) == [0]
    assert evicted(5, GIVEN) == [0, 1]
    assert evicted(99, GIVEN) == [0, 1], "all that there is"
    assert LruSwap().evict(1, GIVEN, 9.0) == [Eviction(0, "host")]


def test_of_tensors_used_at_the_same_time_the_largest_goes_then_the_first() -> None:
    same = [Resident(tensor, size, 1.0, 0.0, 0.0) for tensor, size in ((0, 2), (1, 4), (2, 4))]
    assert evicted(5, same) == [1, 2]


def three_tensors() -> Step:
    """``a`` is made first and read third, so that ``b`` is the one unused for longest when ``c``
    needs room.
    """
    rows: list[Row] = [
        ("make a", "forward", 1.0, (), ("a",)),
        ("make b", "forward", 1.0, (), ("b",)),
        ("read a", "forward", 1.0, ("a",), ()),
        ("make c", "forward", 1.0, (), ("c",)),
        ("read b", "backward", 1.0, ("b",), ()),
        ("read a, c", "backward", 1.0, ("a", "c"), ()),
    ]
    return make_step(rows, {"a": 2, "b": 3, "c": 4})


def test_of_three_tensors_the_one_read_again_stays() -> None:
    # 8 bytes, a byte a second. Op 3 lacks 1 of its 4 bytes: b (3 bytes) leaves from 3 to 6, c is made until
    # 7. Op 4 needs b: 6 bytes are taken, 1 is missing, a (2) leaves from 7 to 9, b comes from 9 to 12 and is
    # read until 13. b is dead then, a returns from 13 to 15 and is read until 16.
    found = simulated(three_tensors(), 8)
    assert found.transfers["out"] == [(3.0, 6.0), (7.0, 9.0)]
    assert found.transfers["back"] == [(9.0, 12.0), (13.0, 15.0)]
    assert found.step_time == 16.0 and found.peak_bytes == 7
    assert found.stalls["space"] == 3.0 + 2.0 and found.stalls["transfer"] == 3.0 + 2.0


def test_with_room_for_all_nothing_moves() -> None:
    found = simulated(three_tensors(), 9)
    assert found.step_time == found.ideal_time == 6.0 and not any(found.moved_bytes.values())


def test_an_op_whose_own_tensors_exceed_the_device_is_named() -> None:
    with pytest.raises(Infeasible, match=r"op 5 \(read a, c, backward\).*1 bytes are missing of 5"):
        simulated(three_tensors(), 5)


def parameters_in_turn() -> Step:
    """Two parameters of 2 bytes, and an activation that leaves room for one of them."""
    rows: list[Row] = [
        ("read v", "forward", 1.0, ("v",), ()),
        ("read w, make x", "forward", 1.0, ("w",), ("x",)),
        ("read x", "backward", 1.0, ("x",), ()),
    ]
    return make_step(rows, {"v": 2, "w": 2, "x": 2}, persistent=("v", "w"))


def test_a_parameter_that_left_is_fetched_in_every_later_step() -> None:
    # The first step finds both parameters there and sends v away (2 s); each later one also fetches v (2 s).
    policy, step, on = LruSwap(), parameters_in_turn(), machine(4, bandwidth=1.0)
    assert simulated(step, 4).step_time == 3.0 + 2.0
    steady = Simulator(step, on).steady(plan_of(policy, step, on), policy)
    assert steady.first is not None and steady.first.step_time == 5.0
    assert steady.step_time == 3.0 + 2.0 + 2.0
    assert steady.moved_bytes["out"] == steady.moved_bytes["back"] == 2


@st.composite
def pages_in_turn(draw: st.DrawFn) -> Step:
    """Ops that each touch one page of a byte: made at its first use, dead after its last."""
    order = draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=30))
    rows: list[Row] = []
    for place, name in enumerate(order):
        born = name not in order[:place]
        rows.append((f"op {place}", "forward", 1.0, () if born else (name,), (name,) if born else ()))
    return make_step(rows, dict.fromkeys(sorted(set(order)), 1))


@given(pages_in_turn())
def test_of_pages_of_one_size_more_memory_never_moves_more(step: Step) -> None:
    seen = [simulated(step, capacity) for capacity in range(1, 7)]
    back = [found.moved_bytes["back"] for found in seen]
    assert back == sorted(back, reverse=True) and back[-1] == 0
    assert all(found.peak_bytes <= capacity for capacity, found in enumerate(seen, 1))
    for found in seen:
        assert found.step_time == pytest.approx(found.ideal_time + found.stall_time)
