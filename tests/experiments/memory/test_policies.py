"""vDNN and checkpointing against examples worked out by hand."""

from __future__ import annotations

import pytest

from experiments.memory.interface import MemoryPlan, Offload, Recompute, violations
from experiments.memory.interface.activations import layers
from experiments.memory.planning.layer_offload import offload_set, prefetch_layers
from experiments.memory.planning.segments import greedy
from experiments.memory.policies.baseline import Baseline
from experiments.memory.policies.checkpoint import Checkpoint
from experiments.memory.policies.swap_all import SwapAll
from experiments.memory.policies.vdnn import VdnnAll, VdnnConv, VdnnDyn
from experiments.memory.simulator import Simulator
from tests.experiments.memory.steps import MS, chain, five_layers, machine, plan_of


def offloaded(plan: MemoryPlan, step) -> list[str]:
    return [step.tensors.name[move.tensor] for move in plan.moves if isinstance(move, Offload)]


def test_vdnn_offloads_inputs_of_feature_layers_or_of_convolutions_only():
    step = five_layers()
    assert offloaded(plan_of(VdnnAll(), step, machine()), step) == ["X0", "X2", "X3"]
    assert offloaded(plan_of(VdnnConv(), step, machine()), step) == ["X0", "X2"]


def test_vdnn_prefetch_search_stops_at_a_convolution():
    # Positions are one higher than the layers' numbers: position 0 loads the batch.
    step = five_layers()
    net = layers(step)
    assert prefetch_layers(net, offload_set(step, net, "all")) == {5: 4, 4: 3, 3: 1}
    assert prefetch_layers(net, offload_set(step, net, "conv")) == {5: 3, 3: 1}


def test_vdnn_forward_lasts_14_ms_because_layer_2_waits_for_its_copy():
    # 4 + 1 + max(4, 6) + 1 + 2; without swapping 12.
    step = five_layers()
    done = Simulator(step, machine()).run(plan_of(VdnnAll(), step, machine()))
    forward = [(start, end) for start, end in done.idle if start < 14 * MS]
    assert [(round(start / MS, 9), round(end / MS, 9)) for start, end in forward] == [(9, 11)]
    assert sum(step.ops.seconds[:6]) + 2 * MS == pytest.approx(14 * MS)


def test_vdnn_dyn_tries_none_then_conv_then_all():
    step = five_layers()
    peak = step.live_peak

    def choice(capacity: int, **knobs) -> str:
        return plan_of(VdnnDyn(**knobs), step, machine(capacity)).notes["offloads"]

    conv = Simulator(step, machine()).run(plan_of(VdnnConv(), step, machine())).peak_bytes
    assert conv < peak
    assert choice(peak) == "none"
    assert choice(peak - 1) == "conv"
    assert plan_of(VdnnDyn(), step, machine(peak)).moves == ()
    assert choice(1) == "all"  # does not fit either: carrying it out says where
    assert choice(peak - 1, pick="fastest") in ("conv", "all")


def test_checkpoint_keeps_every_fourth_of_16_layers_and_holds_eight_units():
    # 4 borders kept, 3 layers of a segment made again, and the gradient.
    step = chain(16)
    plan = plan_of(Checkpoint(), step, machine())
    assert plan.notes["kept_after_ops"] == [3, 7, 11, 15]
    assert violations(plan, step, machine()) == []
    done = Simulator(step, machine()).run(plan)
    assert done.peak_bytes == 8
    assert done.recompute_time == 12  # three of every four layers once more
    assert step.live_peak == 17


def test_checkpoint_memory_grows_like_the_square_root():
    peaks = {
        n: Simulator(chain(n), machine()).run(plan_of(Checkpoint(), chain(n), machine())).peak_bytes
        for n in (16, 64, 256)
    }
    assert peaks == {16: 8, 64: 16, 256: 32}


def test_greedy_walk_of_the_paper_keeps_indices_3_and_5():
    assert greedy([3, 1, 4, 1, 5, 9, 2, 6], range(8), 8) == [3, 5]


def test_searching_the_budget_is_no_worse_than_the_middle_of_the_search():
    step = chain(25)
    searched = plan_of(Checkpoint(variant="greedy"), step, machine())
    given = plan_of(Checkpoint(variant="greedy", budget=5.0), step, machine())
    peak = [Simulator(step, machine()).run(plan).peak_bytes for plan in (searched, given)]
    assert peak[0] <= peak[1] < step.live_peak


def test_a_rerun_of_a_chain_begins_at_the_border_before_it():
    plan = plan_of(Checkpoint(), chain(16), machine())
    reruns = [move.ops for move in plan.moves if isinstance(move, Recompute)]
    assert reruns == [(12, 13, 14), (8, 9, 10), (4, 5, 6), (0, 1, 2)]


def test_swap_all_leaves_what_is_read_at_once_and_fetches_ahead():
    step = five_layers()
    plan = plan_of(SwapAll(ahead=2), step, machine())
    assert offloaded(plan, step) == ["X0", "X2", "X3"]
    assert violations(plan, step, machine()) == []
    assert plan_of(SwapAll(least_bytes=4), step, machine()).moves[0].tensor == step.tensors.name.index("X2")


def test_the_baseline_does_nothing():
    assert plan_of(Baseline(), five_layers(), machine(1)) == MemoryPlan()
