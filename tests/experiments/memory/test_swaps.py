"""Gaps, clocks and loads of hand-made steps."""

from __future__ import annotations

import pytest

from experiments.memory.interface import MemoryPlan, violations
from experiments.memory.planning.swaps import (
    Gap,
    TensorSwap,
    UnstalledClock,
    gaps_of,
    load_under,
    moves_of,
    within,
)
from experiments.memory.simulator import Simulator
from tests.experiments.memory.steps import chain, five_layers, machine, make_step


def test_a_gap_is_where_no_op_touches_a_tensor():
    step = five_layers()
    names = step.tensors.name
    found = {(names[gap.tensor], gap.after, gap.before) for gap in gaps_of(step)}
    assert found == {("X0", 1, 10), ("X2", 3, 8), ("X3", 4, 7)}
    assert [names[gap.tensor] for gap in gaps_of(step, least_bytes=3)] == ["X0", "X2"]


def test_only_persistent_tensors_wrap_and_idle_through_the_end_of_the_step():
    step = make_step(
        [
            ("a", "forward", 1.0, ["w"], ["x"]),
            ("b", "forward", 2.0, ["x"], ["y"]),
            ("c", "backward", 4.0, ["y"], []),
        ],
        {"w": 5, "x": 1, "y": 1},
        persistent=["w"],
    )
    (gap,) = gaps_of(step, wrapping=True)
    assert gap == Gap(0, 5, 0, 0, wraps=True)
    assert UnstalledClock(step).idle(gap) == 6.0


def test_walking_back_finds_the_latest_op_from_which_a_transfer_is_hidden():
    # Ten ops of 10 ms; 15 ms before op 8 starts (80 ms) is 65 ms: op 6 starts at 60.
    rows = [(f"op_{i}", "forward", 0.010, [], [f"t{i}"]) for i in range(10)]
    clock = UnstalledClock(make_step(rows, {f"t{i}": 1 for i in range(10)}))
    assert clock.walk_back(8, 0.015) == 6
    assert clock.walk_back(8, 0.020) == 6
    assert clock.walk_back(8, 0.021) == 5
    assert clock.walk_back(8, 1.0, floor=3) == 3


def test_a_tensor_comes_back_no_earlier_than_there_is_room():
    step = chain(4)
    gap = next(gap for gap in gaps_of(step) if step.tensors.name[gap.tensor] == "a0")
    early = TensorSwap(gap, gap.after + 2)
    peak = step.live_peak
    assert load_under(step, [early]).max() == peak  # it is back before the peak
    (late,) = within(step, [early], peak - 1)
    assert load_under(step, [late]).max() == peak - 1
    assert late.back <= gap.before
    assert within(step, [early], peak) == [early]


@pytest.mark.parametrize("capacity", [17, 12, 9])
def test_what_fits_by_the_count_fits_in_the_simulator(capacity):
    step = chain(16)
    swaps = within(step, [TensorSwap(gap, gap.after + 2) for gap in gaps_of(step)], capacity)
    assert load_under(step, swaps).max() <= capacity
    on = machine(capacity, bandwidth=0.5)
    plan = MemoryPlan(moves_of(swaps))
    assert violations(plan, step, on) == []
    assert Simulator(step, on).run(plan).peak_bytes <= capacity
