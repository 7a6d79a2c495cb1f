"""AutoSwap's priorities and its two modes, and SmartPool beside a best-fit pool and the load."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.memory.interface import CopyRate, MemoryPlan, Offload, violations
from experiments.memory.planning.swaps import Gap, UnstalledClock
from experiments.memory.policies.autoswap import SCORES, AutoSwap, ranks, scores, weighted_idle
from experiments.memory.policies.autoswap.hidden_copies import copy_back_starts, copy_out_ends
from experiments.memory.simulator import Simulator
from tests.experiments.memory.steps import MS, chain, machine, make_step, plan_of

MB = 10**6


def test_the_duration_of_absence_is_the_idle_time_less_both_copies():
    # The paper's transfer model: 47.2 us + 0.0756 ns a byte out, 9.7 us + 0.0823 ns a byte in.
    rows = [
        ("a", "forward", 1 * MS, [], ["t"]),
        ("b", "forward", 30 * MS, [], []),
        ("c", "backward", 1 * MS, ["t"], []),
    ]
    step = make_step(rows, {"t": 100 * MB})
    on = machine(out=CopyRate(1 / 0.0756e-9, 47.2e-6), back=CopyRate(1 / 0.0823e-9, 9.7e-6))
    assert on.out_time(100 * MB) == pytest.approx(7.607e-3, abs=5e-7)
    assert on.back_time(100 * MB) == pytest.approx(8.240e-3, abs=5e-7)
    gap = Gap(0, 100 * MB, 0, 2)
    doa, aoa, wdoa = scores([gap], UnstalledClock(step), on, step.live_bytes, 60 * MB)
    assert doa[0] == pytest.approx(14.153e-3, abs=1e-6)
    assert aoa[0] == pytest.approx(doa[0] * 100 * MB)
    assert wdoa[0] == 40 * MB  # one op in the gap, 40 MB above the limit


def test_a_gap_too_short_for_its_copies_counts_for_less_the_smaller_it_is():
    step = chain(3)
    big, small = Gap(0, 100, 0, 2), Gap(0, 10, 0, 2)
    doa, aoa, _ = scores([big, small], UnstalledClock(step), machine(bandwidth=1.0), step.live_bytes, 0)
    assert doa.tolist() == [1 - 200, 1 - 20]
    assert aoa.tolist() == [-199 / 100, -19 / 10]


def test_a_gap_around_the_end_weighs_the_ops_on_both_sides():
    gap = Gap(0, 1, 3, 1, wraps=True)
    assert weighted_idle([gap], np.array([10, 2, 3, 4, 20]), 5.0).tolist() == [(10 - 5) + (20 - 5)]
    assert [op for op in range(5) if gap.crosses(op)] == [0, 4]
    assert ranks(np.array([5.0, 1.0, 5.0])).tolist() == [1, 0, 1]


def test_copies_out_queue_up_and_copies_in_are_packed_against_their_uses():
    # Two tensors of 2 bytes; at a byte a second the second copy out waits for the first, the first copy in
    # for the second.
    rows = [(f"op_{i}", "forward", 1.0, [], [f"t{i}"]) for i in range(10)]
    clock, on = UnstalledClock(make_step(rows, {f"t{i}": 2 for i in range(10)})), machine(bandwidth=1.0)
    first, second = Gap(0, 2, 0, 8), Gap(1, 2, 1, 9)
    assert copy_out_ends([first, second], clock, on) == {first: 3.0, second: 5.0}
    assert copy_back_starts([first, second], clock, on) == {first: 5.0, second: 7.0}


@pytest.mark.parametrize("score", SCORES)
def test_the_limit_is_kept_and_the_addresses_fit(score):
    step = kilobytes(24)
    on = machine(16 * 1024, bandwidth=512.0)
    plan = plan_of(AutoSwap(score=score, least_bytes=1, trials=4), step, on)
    assert violations(plan, step, on) == []
    done = Simulator(step, on).run(plan)
    assert done.peak_bytes <= done.pool_bytes <= on.capacity
    assert plan.notes["load_bound"] <= plan.notes["smartpool_bytes"] <= on.capacity
    assert plan == plan_of(AutoSwap(score=score, least_bytes=1, trials=4), step, on)


def kilobytes(layers: int):
    """The chain with a kilobyte instead of a byte."""
    step = chain(layers)
    step.tensors.bytes[:] *= 1024
    return step


@pytest.mark.parametrize("bandwidth", [200.0, 1024.0, 65536.0])
@pytest.mark.parametrize("pool", ["none", "best_fit"])
def test_without_overhead_the_step_time_never_changes(bandwidth, pool):
    step, on = kilobytes(24), machine(bandwidth=bandwidth)
    plan = plan_of(AutoSwap(mode="no_overhead", limit=0.0, least_bytes=1, pool=pool), step, on)
    assert violations(plan, step, on) == []
    done = Simulator(step, on).run(plan)
    assert done.step_time == pytest.approx(step.seconds)
    assert done.peak_bytes < step.live_peak
    assert done.peak_bytes <= plan.notes["load"]


def test_nothing_moves_where_all_fits_and_small_tensors_stay():
    step = kilobytes(24)
    assert plan_of(AutoSwap(), step, machine(step.live_peak)) == MemoryPlan()
    plan = plan_of(AutoSwap(least_bytes=2048), step, machine(16 * 1024))
    assert not any(isinstance(move, Offload) for move in plan.moves)
