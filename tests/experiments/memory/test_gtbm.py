"""GTBM: classes of tensors, the two-ended pool, prefetch two convolutions ahead."""

from __future__ import annotations

from experiments.memory.interface import MemoryPlan, MemoryPool, Offload, Prefetch, violations
from experiments.memory.policies.gtbm import Gtbm, heavy_ops, start_of_fetch, temporaries
from experiments.memory.simulator.pools.ranges import TwoEndedAllocator
from tests.experiments.memory.steps import Row, machine, make_step, plan_of

LAYERS, SIZE = 5, 1000


def convnet() -> list[Row]:
    rows: list[Row] = [
        (f"conv{i}", "forward", 1.0, (f"y{i - 1}" if i else "x",), (f"y{i}",)) for i in range(LAYERS)
    ]
    rows.append(("mse_loss", "forward", 1.0, (f"y{LAYERS - 1}",), ("g",)))
    for i in reversed(range(LAYERS)):
        before = f"g{i + 1}" if i < LAYERS - 1 else "g"
        rows.append((f"conv_backward{i}", "backward", 1.0, (f"y{i - 1}" if i else "x", before), (f"g{i}",)))
    return rows


SIZES = {name: SIZE for row in convnet() for name in (*row[3], *row[4])}
STEP = make_step(convnet(), SIZES, persistent=("x",))


def test_a_copy_back_begins_with_the_second_convolution_before_its_consumer() -> None:
    heavy = heavy_ops(STEP)
    assert heavy == [6, 7, 8, 9, 10]
    assert start_of_fetch(9, heavy, 2, 6) == 7
    assert (
        start_of_fetch(7, heavy, 2, 6) == 6
    )  # fewer than two before it: as early as the backward pass begins


def test_without_convolutions_the_slowest_fifth_stands_for_them() -> None:
    rows: list[Row] = [("f", "forward", 1.0, (), ("a",))]
    rows += [(f"b{i}", "backward", 9.0 if i in (3, 7) else 1.0, ("a",), (f"d{i}",)) for i in range(10)]
    step = make_step(rows, {"a": 1, **{f"d{i}": 1 for i in range(10)}})
    assert heavy_ops(step) == [4, 8]


def test_reused_tensors_leave_and_temporaries_have_the_top() -> None:
    on = machine(4 * SIZE + 1)
    plan = plan_of(Gtbm(), STEP, on)
    assert violations(plan, STEP, on) == []
    names = STEP.tensors.name
    gone = [names[move.tensor] for move in plan.moves if isinstance(move, Offload)]
    assert gone == ["y0", "y1", "y2", "y3"]
    back = {names[move.tensor]: move.at for move in plan.moves if isinstance(move, Prefetch)}
    assert back == {"y3": 6, "y2": 6, "y1": 6, "y0": 7}
    assert isinstance(plan.space, MemoryPool)
    assert plan.space.high == temporaries(STEP)
    assert {names[t] for t in temporaries(STEP)} == {"y4", "g0", "g1", "g2", "g3", "g4"}


def test_freed_temporaries_leave_one_hole() -> None:
    pool = TwoEndedAllocator(16 * 512, 512, high=(1, 3, 5))
    taken = {tensor: pool.take(tensor, 512 * (tensor + 1) // 2) for tensor in range(6)}
    for tensor in (3, 1, 5):
        address = taken[tensor]
        assert address is not None
        pool.give(address)
    assert pool.largest == pool.free


def test_all_fits_nothing_moves() -> None:
    plan = plan_of(Gtbm(pool=False), STEP, machine(STEP.live_peak))
    assert plan.moves == MemoryPlan().moves
