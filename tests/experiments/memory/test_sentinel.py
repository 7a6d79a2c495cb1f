"""Sentinel: intervals of K layers, and what is left in slow memory."""

from __future__ import annotations

import pytest

from experiments.memory.interface import CopyRate, InPlace, Offload, PlaceTensor, Prefetch, violations
from experiments.memory.policies.sentinel import Sentinel
from experiments.memory.policies.sentinel.intervals import Intervals, layer_starts
from experiments.memory.simulator import Simulator
from tests.experiments.memory.steps import MS, chain, machine, make_step, plan_of

GB = 10**9


def weights(layers: int = 12):
    """Layers of 10 ms, each with a weight of half a gigabyte, forward and then backward."""
    rows = [(f"layer_{i}", "forward", 10 * MS, [f"w{i}"], [f"x{i}"]) for i in range(layers)]
    rows += [
        (f"back_{i}", "backward", 10 * MS, [f"w{i}", f"x{i}"], [f"g{i}"]) for i in reversed(range(layers))
    ]
    sizes = {f"w{i}": GB // 2 for i in range(layers)} | {
        f"{kind}{i}": 0 for i in range(layers) for kind in "xg"
    }
    return make_step(rows, sizes, persistent=[f"w{i}" for i in range(layers)])


def test_three_gigabytes_hold_two_intervals_of_three_layers_and_60_gb_per_second_hides_them():
    # Moving K layers takes 8.33 K ms, less than their 10 K ms; two intervals of K layers take K gigabytes.
    step, on = weights(), machine(3 * GB, bandwidth=60e9)
    intervals = Intervals(step, layer_starts(step), 1)
    assert intervals.reserved == 0
    costs = [Sentinel().cost(intervals, layers, on) for layers in (1, 2, 3, 4)]
    assert costs == [
        pytest.approx(24 * 50e-6),
        pytest.approx(12 * 50e-6),
        pytest.approx(8 * 50e-6),
        float("inf"),
    ]
    plan = plan_of(Sentinel(), step, on)
    assert plan.notes["interval"] == 3
    assert violations(plan, step, on) == []
    done = Simulator(step, on).run(plan)
    assert done.peak_bytes <= 3 * GB


def test_a_slow_link_is_exposed_by_the_time_that_it_lacks():
    # 30 GB/s: an interval of 3 layers takes 50 ms to move and 30 to run. Groups 0 1 2 3 3 2 1 0 are used in
    # turn: group 3 is still there for the fifth interval, and group 0 for the first, which follows the last
    # one. Six wait 20 ms.
    step = weights()
    intervals = Intervals(step, layer_starts(step), 1)
    cut = intervals.cut(3)
    assert (cut.used / GB).tolist() == [1.5] * 8
    assert (cut.fetched / GB).tolist() == [0, 1.5, 1.5, 1.5, 0, 1.5, 1.5, 1.5]
    assert Sentinel(sync_microseconds=0.0).cost(
        intervals, 3, machine(3 * GB, bandwidth=30e9)
    ) == pytest.approx(6 * 0.02)


def test_a_tensor_leaves_when_two_intervals_do_not_use_it_and_returns_one_ahead():
    step = weights()
    intervals = Intervals(step, layer_starts(step), 1)
    swaps = {swap.gap.tensor: swap for swap in intervals.swaps(3, "host") if not swap.gap.wraps}
    # Weight 0 is used by intervals 0 (ops 0-2) and 7 (ops 21-23); weight 6 by intervals 2 and 5 (ops 15-17).
    assert (swaps[0].leave, swaps[0].back) == (3, 18)
    assert (swaps[6].leave, swaps[6].back) == (9, 12)
    assert 9 not in swaps  # used by intervals 3 and 4


def test_short_lived_tensors_are_reserved_and_never_move():
    step = chain(12)
    intervals = Intervals(step, layer_starts(step), 1)
    assert "g" in [step.tensors.name[t] for t in intervals.tensors]
    plan = plan_of(Sentinel(least_bytes=1), step, machine(9, bandwidth=4.0))
    assert violations(plan, step, machine(9)) == []
    moved = {move.tensor for move in plan.moves if isinstance(move, Offload | Prefetch)}
    assert moved <= set(intervals.tensors)


def test_nothing_moves_where_all_fits():
    step = chain(12)
    assert plan_of(Sentinel(), step, machine(step.live_peak)).moves == ()


def test_what_would_come_late_is_used_in_slow_memory_where_that_is_faster():
    # The link gives half a byte a second, memory beyond it eight: a weight is fetched in 8 s or read in half
    # a second.
    rows = [("a", "forward", 1.0, ["w"], ["x"]), ("b", "forward", 1.0, ["x"], ["big"])]
    rows += [(f"c{i}", "forward", 1.0, ["big"], []) for i in range(4)]
    rows += [("d", "backward", 1.0, ["w"], ["y"]), ("e", "backward", 1.0, ["y"], [])]
    step = make_step(rows, {"w": 4, "x": 1, "big": 4, "y": 1}, persistent=["w"])
    remote = CopyRate(8.0)
    on = machine(6, bandwidth=0.5, remote_bytes=100, remote_write=remote, remote_read=remote)
    plan = plan_of(Sentinel(least_bytes=1), step, on)
    assert violations(plan, step, on) == []
    assert any(isinstance(move, InPlace) for move in plan.moves)
    assert PlaceTensor(0, step.tensors.name.index("w"), "remote") in plan.moves
    assert Simulator(step, on).run(plan).step_time == pytest.approx(step.seconds)
