"""G10 and FlashNeuron under real capacities, on a chain of layers whose activations are ten pages each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.core import registry
from experiments.core.errors import Infeasible
from experiments.memory.interface import Offload, Prefetch, violations
from experiments.memory.interface.machine import CopyRate
from experiments.memory.interface.paged import PAGE
from experiments.memory.planning.backing import backing_of
from experiments.memory.planning.swaps import Gap, TensorSwap
from experiments.memory.policies.flashneuron.ssd_offload import compression
from experiments.memory.policies.g10.real_migrations import in_turn
from experiments.memory.simulator import Simulator
from tests.experiments.memory.steps import machine, make_step, plan_of

SIZE = 10 * PAGE


def layers(count: int):
    """Layer i reads a(i-1), writes a(i); its backward reads a(i-1) and the gradient. A second each."""
    rows = [("load", "forward", 1.0, [], ["a0"])]
    rows += [(f"layer{i}", "forward", 1.0, [f"a{i - 1}"], [f"a{i}"]) for i in range(1, count)]
    rows += [("makeLoss", "forward", 1.0, [f"a{count - 1}"], [f"g{count - 1}"])]
    rows += [
        (f"back{i}", "backward", 1.0, [f"g{i}", f"a{i - 1}"], [f"g{i - 1}"]) for i in range(count - 1, 0, -1)
    ]
    names = [f"{kind}{i}" for kind in "ag" for i in range(count)]
    return make_step(rows, dict.fromkeys(names, SIZE))


def on(pages: int, seconds: float = 0.5):
    """A device of ``pages``, with links that move an activation in ``seconds``."""
    rate = CopyRate(SIZE / seconds)
    return machine(capacity=pages * PAGE, out=rate, back=rate, write=rate, read=rate)


@pytest.mark.parametrize("name", ["flashneuron", "g10", "g10-gds", "g10-host"])
@pytest.mark.parametrize("pages", [100, 80, 60])
def test_a_step_that_does_not_fit_is_made_to_fit(name, pages):
    step = layers(12)
    assert step.live_peak == 130 * PAGE
    policy = registry.create("memory", name, {})
    plan = plan_of(policy, step, on(pages))
    assert violations(plan, step, on(pages)) == []
    found = Simulator(step, on(pages)).run(plan)
    assert found.peak_bytes <= pages * PAGE
    assert found.step_time >= found.ideal_time == 24.0
    assert found.moved_bytes["out"] == sum(SIZE for move in plan.moves if isinstance(move, Offload))
    faster = Simulator(step, on(pages, seconds=0.25)).run(plan)
    assert faster.step_time <= found.step_time


def test_g10_hides_nearly_all_that_it_moves_where_links_are_fast():
    found = Simulator(layers(12), on(80)).run(
        plan_of(registry.create("memory", "g10", {}), layers(12), on(80))
    )
    assert found.stall_time <= 0.5, "one copy at most is waited for"


def test_g10_uses_the_host_when_there_is_no_storage():
    there = replace(on(80), storage_bytes=0, write=CopyRate(0.0), read=CopyRate(0.0))
    plan = plan_of(registry.create("memory", "g10", {}), layers(12), there)
    assert {move.tier for move in plan.moves if isinstance(move, Offload)} == {"host"}
    assert Simulator(layers(12), there).run(plan).peak_bytes <= 80 * PAGE


def test_what_comes_back_in_turn_waits_for_what_is_needed_sooner():
    def swap(tensor: int, before: int, back: int) -> TensorSwap:
        return TensorSwap(Gap(tensor, SIZE, 0, before), back)

    early, late = swap(0, before=8, back=5), swap(1, before=9, back=3)
    assert in_turn([late, early]) == [early, swap(1, before=9, back=5)]


def test_storage_that_would_take_too_long_leaves_the_rest_to_the_host():
    """Storage passes one activation in 4 s, the host link in half a second; all twelve idle gaps begin a
    second apart.
    """
    there = replace(on(80), write=CopyRate(SIZE / 4), read=CopyRate(SIZE / 4))
    plan = plan_of(registry.create("memory", "g10", {}), layers(12), there)
    tiers = [move.tier for move in plan.moves if isinstance(move, Offload)]
    assert "host" in tiers
    found = Simulator(layers(12), there).run(plan)
    assert found.stall_time <= 1.0


def test_flashneuron_writes_in_forward_order_and_reads_after_the_loss():
    step = layers(12)
    plan = plan_of(registry.create("memory", "flashneuron", {}), step, on(80))
    out = [move.tensor for move in plan.moves if isinstance(move, Offload)]
    # 80 pages less the largest op's 30 leave 50 for twelve saved tensors of 10: eight leave, so that 40 stay.
    assert out == list(range(8))
    assert all(move.at > 12 for move in plan.moves if isinstance(move, Prefetch))
    assert {move.tier for move in plan.moves if isinstance(move, Offload)} == {"storage"}
    with pytest.raises(Infeasible, match="nothing is left"):
        plan_of(registry.create("memory", "flashneuron", {}), step, on(30))


def test_phase_2_prefers_what_compresses_when_writing_takes_too_long():
    step = layers(12)
    sparsity = np.full(24, 0.0)
    sparsity[5:9] = 0.9
    step = replace(step, tensors=replace(step.tensors, sparsity=sparsity))
    assert compression(step, 0) == 2.0, "16-bit values"
    assert compression(step, 5) == pytest.approx(10.0), (
        "a tenth of the values, 16 bits and a 16-bit column each"
    )
    slow = on(80, seconds=4.0)
    plan = plan_of(registry.create("memory", "flashneuron", {"compress": True}), step, slow)
    ratios = {move.tensor: move.ratio for move in plan.moves if isinstance(move, Offload)}
    assert {5, 6, 7, 8} <= set(ratios)
    assert ratios[5] == pytest.approx(10.0)
    plain = plan_of(registry.create("memory", "flashneuron", {}), step, slow)
    assert Simulator(step, slow).run(plan).step_time < Simulator(step, slow).run(plain).step_time


def test_unified_memory_lies_on_the_host_if_the_host_is_large_enough():
    step = layers(12)
    assert backing_of(step, machine(host_bytes=130 * PAGE)) == "host"
    assert backing_of(step, machine(host_bytes=130 * PAGE - 1)) == "cached_storage"
