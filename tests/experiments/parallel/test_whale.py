"""Whale: shares follow speed, then memory. Figures are those a reader can work out."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.core.errors import Infeasible
from experiments.hardware import Hardware, NodeGroup
from experiments.hardware.parts import Peaks
from experiments.parallel.interface import violations
from experiments.parallel.policies.data_parallel import DataParallel
from experiments.parallel.policies.whale import Whale
from experiments.parallel.policies.whale.uneven import proportional, proportional_cut, within_memory
from experiments.parallel.simulator import simulate
from tests.experiments.parallel.builders import chain, cluster, estimate

SPEEDS = (14.0, 14.0, 9.0, 9.0)


def mixed(memory: tuple[int, int] = (10**15, 10**15)) -> Hardware:
    """Two devices of 14 FLOP/s and two of 9, on a machine of each kind."""
    plain = cluster(nodes=1, per_node=2)
    groups = []
    for rate, capacity in zip((14.0, 9.0), memory, strict=True):
        device = dataclasses.replace(
            plain.device, peak_flops=Peaks({"float32": rate}), memory_bytes=capacity, name=f"unit{rate:g}"
        )
        groups.append(NodeGroup(1, dataclasses.replace(plain.node, device=device)))
    return dataclasses.replace(plain, groups=tuple(groups))


def test_samples_follow_speed_so_that_all_devices_end_together() -> None:
    assert proportional(92, SPEEDS) == [28, 28, 18, 18]
    model, hardware = chain(1, 1.0, 2.0), mixed()
    asked = estimate(model, hardware)
    ours = simulate(Whale().place(model, hardware, 92, asked), asked)
    equal = simulate(DataParallel().place(model, hardware, 92, asked), asked)
    assert ours.step_time == pytest.approx(28 * 3.0)
    assert ours.bubble_fraction == pytest.approx(0.0)
    assert equal.step_time == pytest.approx(23 * 3.0 * 14 / 9)


def test_four_samples_leave_a_full_device_for_the_least_busy_one() -> None:
    shares = within_memory([28, 28, 18, 18], SPEEDS, lambda _, share: share, [24, 100, 100, 100])
    assert shares == [24, 30, 19, 19]
    assert max(share / speed for share, speed in zip(shares, SPEEDS, strict=True)) == pytest.approx(30 / 14)


def test_what_fits_nowhere_is_infeasible_with_the_missing_bytes() -> None:
    with pytest.raises(Infeasible) as refused:
        within_memory([3, 3], [1.0, 1.0], lambda _, share: share, [2.0, 3.0])
    assert refused.value.missing == 1.0
    model, hardware = chain(4, stash_bytes=10.0), mixed((30, 30))
    with pytest.raises(Infeasible):
        Whale().place(model, hardware, 92, estimate(model, hardware))


@given(st.integers(0, 500), st.lists(st.integers(1, 50), min_size=1, max_size=6))
def test_shares_are_whole_and_off_by_less_than_one(total: int, speeds: list[int]) -> None:
    shares = proportional(total, speeds)
    assert sum(shares) == total
    assert all(
        abs(share - total * speed / sum(speeds)) < 1 for share, speed in zip(shares, speeds, strict=True)
    )


@given(
    st.lists(st.integers(1, 9), min_size=3, max_size=7), st.lists(st.integers(1, 5), min_size=1, max_size=3)
)
def test_the_cut_is_as_good_as_any(costs: list[int], speeds: list[int]) -> None:
    def slowest(ends: list[int]) -> float:
        spans = zip([0, *ends[:-1]], ends, strict=True)
        return max(sum(costs[a:b]) / speed for (a, b), speed in zip(spans, speeds, strict=True))

    every = itertools.combinations(range(1, len(costs)), len(speeds) - 1)
    best = min(slowest([*borders, len(costs)]) for borders in every)
    assert slowest(proportional_cut(costs, speeds)) == pytest.approx(best)


def test_a_pipeline_begins_where_memory_is_largest_and_gives_fast_devices_more_layers() -> None:
    model, hardware = chain(46, stash_bytes=1.0), mixed((10**6, 2 * 10**6))
    asked = estimate(model, hardware)
    plan = Whale(strategy="pipeline", micro_batches=4).place(model, hardware, 4, asked)
    assert violations(plan, model, hardware) == []
    assert [worker.devices for worker in plan.workers] == [(2,), (3,), (0,), (1,)]
    assert [stage.end - stage.begin for stage in plan.stages] == [9, 9, 14, 14]
    assert simulate(plan, asked).step_time == pytest.approx((4 + 3) * 14 * 3.0)


def test_layers_leave_a_stage_whose_memory_they_overflow() -> None:
    """The first of 4 stages holds 4 micro-batches of 9 layers: 36 bytes; with a capacity of 28 it keeps 7
    layers.
    """
    model, hardware = chain(46, stash_bytes=1.0), mixed((27, 28))
    asked = estimate(model, hardware)
    plan = Whale(strategy="pipeline", micro_batches=4).place(model, hardware, 4, asked)
    assert plan.stages[0].end == 7
    assert simulate(plan, asked).memory[0].peak == 28.0
