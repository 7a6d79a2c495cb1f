"""vDNN++: no waits at layer ends, and a pool laid out ahead."""

from __future__ import annotations

import pytest

from experiments.memory.interface import CountedBytes, Offload, WaitForCopy, violations
from experiments.memory.planning.offsets import pack, stays_of
from experiments.memory.policies.vdnn import VdnnAll
from experiments.memory.policies.vdnn_pp import ORDERS, VdnnPp, absences, best_pool
from experiments.memory.simulator import Simulator
from experiments.workloads.step import Step
from tests.experiments.memory.steps import Row, machine, make_step, plan_of
from tests.experiments.memory.test_compression import SIZE, STEP

MS = 1e-3


def small_net() -> Step:
    """The card's example: CONV0 ACT1 CONV2 POOL3 FC4 of 4, 1, 4, 1 and 2 ms, inputs of 3, 6 and 1 bytes
    leave.
    """
    rows: list[Row] = [
        ("conv0", "forward", 4 * MS, ["x0"], ["x1"]),
        ("relu1", "forward", 1 * MS, ["x1"], ["x2"]),
        ("conv2", "forward", 4 * MS, ["x2"], ["x3"]),
        ("pool3", "forward", 1 * MS, ["x3"], ["x4"]),
        ("linear4", "forward", 2 * MS, ["x4"], ["y"]),
    ]
    sizes = {"x0": 3, "x1": 1, "x2": 6, "x3": 1, "x4": 1, "y": 1}
    reads = ["x4", "x3", "x2", "x1", "x0"]
    names = ["linear4", "pool3", "conv2", "relu1", "conv0"]
    rows += [(f"{name}_backward", "backward", 1 * MS, [x], []) for name, x in zip(names, reads, strict=True)]
    rows = [("input", "forward", 0.0, [], ["x0"]), *rows]
    return make_step(rows, sizes)


def test_compute_goes_on_where_vdnn_waits_for_the_copy() -> None:
    step, on = small_net(), machine(13)
    ours, theirs = (Simulator(step, on).run(plan_of(p, step, on)) for p in (VdnnPp(pool=False), VdnnAll()))
    # vDNN's forward pass takes 14 ms, as conv2 waits for a copy of 6 ms; without waits the five layers take
    # their 12.
    assert ours.step_time <= theirs.step_time - 2 * MS


@pytest.mark.parametrize("offloads", ["all", "conv", "alternate_conv"])
@pytest.mark.parametrize("bandwidth", [1e8, 1e9, 1e10])
def test_never_slower_than_vdnn(offloads: str, bandwidth: float) -> None:
    on = machine(7 * SIZE, bandwidth)
    plan = plan_of(VdnnPp(offloads=offloads, pool=False), STEP, on)
    assert violations(plan, STEP, on) == []
    assert not any(isinstance(move, WaitForCopy) for move in plan.moves)
    if offloads == "all":
        ours = Simulator(STEP, on).run(plan)
        assert ours.step_time <= Simulator(STEP, on).run(plan_of(VdnnAll(), STEP, on)).step_time


def test_every_second_convolution() -> None:
    on = machine(7 * SIZE)
    count = {
        offloads: sum(isinstance(m, Offload) for m in plan_of(VdnnPp(offloads=offloads), STEP, on).moves)
        for offloads in ("conv", "alternate_conv")
    }
    assert count["alternate_conv"] == (count["conv"] + 1) // 2


def test_addresses_never_overlap_and_the_smallest_pool_is_kept() -> None:
    on = machine(7 * SIZE, 1e9)
    plan = plan_of(VdnnPp(), STEP, on)
    stays = stays_of(STEP, absences(plan.moves))
    for order in ORDERS.values():
        found = pack(stays, "best_fit", key=order)
        for a in stays:
            for b in stays:
                apart = a is b or a.end <= b.start or b.end <= a.start
                low, high = sorted((a, b), key=lambda stay: found[stay.tensor])
                assert apart or found[low.tensor] + low.bytes <= found[high.tensor]
    sizes = dict(plan.notes["pool_bytes_by_order"])
    bound = sizes.pop("bound")
    assert min(sizes.values()) >= bound
    pool, _ = best_pool(STEP, plan.moves, on.capacity)
    assert plan.space == pool
    assert violations(plan, STEP, on) == []
    assert Simulator(STEP, on).run(plan).peak_bytes <= on.capacity


def test_all_fits_nothing_moves() -> None:
    assert plan_of(VdnnPp(), STEP, machine(STEP.live_peak)).moves == ()
    assert plan_of(VdnnPp(), STEP, machine(STEP.live_peak)).space == CountedBytes()
