"""moDNN: the smallest set that frees enough, schedules that fit, parts of the batch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.memory.interface import violations
from experiments.memory.interface.transform import transformed
from experiments.memory.planning.swaps import Gap
from experiments.memory.policies.modnn import Modnn, leaving_set, schedule
from experiments.memory.simulator import Simulator
from tests.experiments.memory.steps import machine, plan_of
from tests.experiments.memory.test_layrub import A, network

STEP = replace(network(8), facts={"batch": 8})


def gaps(*sizes: int) -> list[Gap]:
    return [Gap(tensor, size, 0, 10 + tensor) for tensor, size in enumerate(sizes)]


def test_fewest_bytes_then_fewest_tensors_then_the_farthest_use() -> None:
    assert [gap.bytes for gap in leaving_set(gaps(2, 3, 5, 7), 6)] == [7]
    assert [gap.bytes for gap in leaving_set(gaps(2, 3, 5), 6)] == [2, 5]
    assert [gap.tensor for gap in leaving_set(gaps(4, 4, 4), 4)] == [2]
    assert len(leaving_set(gaps(1, 1), 6)) == 2


def test_more_than_twelve_candidates_leave_by_next_use() -> None:
    chosen = leaving_set(gaps(*[1] * 20), 3)
    assert [gap.tensor for gap in chosen] == [19, 18, 17]


@pytest.mark.parametrize("room", [8, 6, 5, 4])
def test_the_schedule_fits_and_is_carried_out(room: int) -> None:
    on = machine(room * A + 2, bandwidth=1e6)
    plan = plan_of(Modnn(parts=1), STEP, on)
    assert violations(plan, STEP, on) == []
    assert Simulator(STEP, on).run(plan).peak_bytes <= room * A + 2


def test_no_more_leaves_than_must() -> None:
    # The peak is nine activations and two bytes: one byte less sends one away.
    assert STEP.live_peak == 9 * A + 2
    assert len(schedule(STEP, 9 * A + 1)) == 1


def test_parts_where_one_whole_batch_has_no_schedule() -> None:
    # An op needs three activations: two do not hold it, in two parts of the batch they do.
    on = machine(2 * A + 2, bandwidth=1e6)
    plan = plan_of(Modnn(acceptable=100.0), STEP, on)
    assert plan.splits == 2
    cut = transformed(STEP, plan)
    assert violations(plan, cut, on) == []
    assert Simulator(STEP, on).run(plan).peak_bytes <= 2 * A + 2


def test_where_all_fits_nothing_moves() -> None:
    assert plan_of(Modnn(), STEP, machine(STEP.live_peak)).moves == ()
