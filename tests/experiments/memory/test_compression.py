"""Compressed swapping: densities, ratios, cDMA and CSWAP."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.memory.interface import Compress, MemoryPlan, Offload, violations
from experiments.memory.planning.density import densities, ratios, zero_value_ratio
from experiments.memory.policies.cdma import Cdma
from experiments.memory.policies.cswap import Codec, Cswap, worthwhile
from experiments.memory.policies.vdnn import VdnnAll
from experiments.memory.simulator import Simulator
from experiments.workloads.step import Step
from tests.experiments.memory.steps import Row, machine, make_step, plan_of

LAYERS = 6
SIZE = 1 << 20


def convnet(seconds: float = 1e-3) -> Step:
    """conv, relu, conv, relu ...: every tensor is a MiB, every op takes ``seconds``."""
    rows: list[Row] = []
    for i in range(LAYERS):
        rows.append((f"conv{i}", "forward", seconds, (f"r{i - 1}" if i else "x",), (f"c{i}",)))
        rows.append((f"relu{i}", "forward", seconds, (f"c{i}",), (f"r{i}",)))
    rows.append(("mse_loss", "forward", seconds, (f"r{LAYERS - 1}",), ("loss",)))
    before = "loss"
    for i in reversed(range(LAYERS)):
        rows.append((f"relu_backward{i}", "backward", seconds, (f"r{i}", before), (f"dc{i}",)))
        rows.append(
            (f"conv_backward{i}", "backward", seconds, (f"r{i - 1}" if i else "x", f"dc{i}"), (f"dr{i}",))
        )
        before = f"dr{i}"
    sizes = {name: SIZE for row in rows for name in (*row[3], *row[4])}
    return make_step(rows, sizes, persistent=("x",))


STEP = convnet()


@pytest.mark.parametrize(("density", "ratio"), [(0.5, 1.882), (0.0, 32.0), (0.96875, 1.0), (1.0, 1.0)])
def test_a_mask_bit_for_each_word_and_the_words_that_are_not_zero(density: float, ratio: float) -> None:
    assert zero_value_ratio(density) == pytest.approx(ratio, abs=1e-3)


def test_rectifiers_zero_half_unless_a_profile_says_otherwise() -> None:
    names = STEP.tensors.name
    assumed = densities(STEP)
    assert assumed[names.index("r0")] == 0.5
    assert assumed[names.index("c0")] == 1.0
    sparsity = np.full(len(names), np.nan)
    sparsity[names.index("r0")] = 0.9
    measured = replace(STEP, tensors=replace(STEP.tensors, sparsity=sparsity))
    assert densities(measured)[names.index("r0")] == pytest.approx(0.1)
    assert ratios(measured, [names.index("r0")])[names.index("r0")] == pytest.approx(1 / (0.1 + 1 / 32))


def test_dense_data_moves_as_with_vdnn() -> None:
    on = machine(7 * SIZE, 1e9)
    ours, vdnn = plan_of(Cdma(density=1.0), STEP, on), plan_of(VdnnAll(), STEP, on)
    assert ours.moves == vdnn.moves


def test_zeros_left_out_shrink_transfers_by_the_ratio_and_never_slow_the_step() -> None:
    on = machine(7 * SIZE, 1e9)
    plan = plan_of(Cdma(), STEP, on)
    assert violations(plan, STEP, on) == []
    ours, vdnn = (Simulator(STEP, on).run(p) for p in (plan, plan_of(VdnnAll(), STEP, on)))
    assert ours.moved_bytes["out"] < vdnn.moved_bytes["out"]
    assert ours.step_time <= vdnn.step_time


def test_the_compressor_bounds_the_rate() -> None:
    on = machine(7 * SIZE, 1e9)
    plan = plan_of(Cdma(density=0.0, compressor_bandwidth=2e9), STEP, on)
    assert max(move.ratio for move in plan.moves if isinstance(move, Offload)) == 2.0


def test_the_papers_example_is_worth_compressing_unless_all_of_it_is_hidden() -> None:
    codec = Codec(ratio=1 / 0.4, encode=5e-3, decode=4e-3)
    assert worthwhile(500e6, codec, 12.5e9, 0.0, 0.0)  # 5 + 16 + 16 + 4 = 41 < 80 ms
    assert not worthwhile(500e6, codec, 12.5e9, 40e-3, 40e-3)
    slow = replace(codec, encode=45e-3)
    assert not worthwhile(500e6, slow, 12.5e9, 0.0, 0.0)


@pytest.mark.parametrize("bandwidth", [1e8, 3e8, 1e9, 1e10])
def test_compression_that_pays_is_chosen_and_the_step_is_legal(bandwidth: float) -> None:
    on = machine(7 * SIZE, bandwidth)
    plan = plan_of(Cswap(), STEP, on)
    assert violations(plan, STEP, on) == []
    ours = Simulator(STEP, on).run(plan)
    vdnn = Simulator(STEP, on).run(plan_of(VdnnAll(), STEP, on))
    assert ours.step_time <= vdnn.step_time * 1.001
    if bandwidth <= 3e8:
        assert any(isinstance(move, Compress) for move in plan.moves)
        assert ours.moved_bytes["out"] < vdnn.moved_bytes["out"]
    if bandwidth == 1e10:
        assert not any(isinstance(move, Compress) for move in plan.moves)


@pytest.mark.parametrize("policy", [Cdma(), Cswap()], ids=str)
def test_nothing_moves_when_all_fits(policy: Cdma | Cswap) -> None:
    assert plan_of(policy, STEP, machine(STEP.live_peak)).moves == MemoryPlan().moves
