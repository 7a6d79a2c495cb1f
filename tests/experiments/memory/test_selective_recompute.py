"""Selective recomputation: the attention core is found between two products, and only it leaves."""

from __future__ import annotations

import pytest

from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.memory.interface import (
    Drop,
    Lineage,
    MemoryPlan,
    Offload,
    Prefetch,
    Recompute,
    violations,
)
from experiments.memory.planning.attention import attention_cores
from experiments.memory.planning.rematerialize import Rematerializer
from experiments.memory.policies.selective_recompute import ABSENT, SelectiveRecompute, cheap_activations
from experiments.memory.simulator import Simulator
from tests.experiments.memory.steps import chain, machine, make_step, plan_of

F, B = "forward", "backward"


def attention():
    """One layer: projections of x, scores of 8 bytes, their softmax, dropout, product with values, output
    projection.
    """
    rows = [
        ("load", F, 1.0, [], ["x"]),
        ("linear_q", F, 2.0, ["x", "w"], ["q"]),
        ("linear_k", F, 2.0, ["x", "w"], ["k"]),
        ("linear_v", F, 2.0, ["x", "w"], ["v"]),
        ("aten.bmm", F, 1.0, ["q", "k"], ["scores"]),
        ("scale", F, 1.0, ["scores"], ["scaled"]),
        ("softmax", F, 1.0, ["scaled"], ["weights"]),
        ("dropout", F, 1.0, ["weights"], ["kept"]),
        ("aten.bmm", F, 1.0, ["kept", "v"], ["mixed"]),
        ("linear_o", F, 2.0, ["mixed", "w"], ["y"]),
        ("loss", F, 1.0, ["y"], ["l"]),
        ("linear_o_backward", B, 2.0, ["l", "mixed", "w"], ["g"]),
        ("bmm_backward", B, 1.0, ["g", "kept", "v"], ["g"]),
        ("dropout_backward", B, 1.0, ["g", "kept"], ["g"]),
        ("softmax_backward", B, 1.0, ["g", "weights"], ["g"]),
        ("bmm_backward", B, 1.0, ["g", "q", "k"], ["g"]),
        ("linear_backward", B, 2.0, ["g", "x", "w"], ["g"]),
    ]
    small = dict.fromkeys(("x", "q", "k", "v", "mixed", "y", "l", "g", "w"), 1)
    large = dict.fromkeys(("scores", "scaled", "weights", "kept"), 8)
    return make_step(rows, {**small, **large}, persistent=["w"])


def test_the_core_lies_between_the_two_products():
    step = attention()
    (core,) = attention_cores(step, Lineage(step))
    assert [step.tensors.name[tensor] for tensor in core.tensors] == ["scores", "scaled", "weights", "kept"]
    assert (core.softmax, core.first) == (6, 4)


def test_only_the_core_is_dropped_and_it_is_made_from_queries_and_keys():
    step = attention()
    plan = plan_of(SelectiveRecompute(), step, machine())
    weights, kept = step.tensors.name.index("weights"), step.tensors.name.index("kept")
    assert plan.moves == (Drop(8, weights), Drop(9, kept), Recompute(12, (4, 5, 6, 7), (weights, kept)))
    assert violations(plan, step, machine()) == []
    done = Simulator(step, machine()).run(plan)
    assert done.recompute_time == 4  # the whole layer would be 11


def test_whole_layers_run_again_from_their_input():
    step = attention()
    done = Simulator(step, machine()).run(plan_of(SelectiveRecompute(select="full"), step, machine()))
    # x, made by the load, is what enters the layer; every op up to the product with the values runs again.
    assert done.recompute_time == 11


def test_by_ratio_the_largest_and_cheapest_leaves_first_and_nothing_behind_a_weight():
    step = attention()
    best = [step.tensors.name[cheap.saved.tensor] for cheap in cheap_activations(step, Rematerializer(step))]
    # 8 bytes in 1 s, 8 in 3 s (weights are gone when kept is wanted, not the other way round), 1 in 1 s, 1 in
    # 1 s.
    assert best == ["kept", "weights", "x", "mixed"]
    tight = machine(step.live_peak - 1)
    plan = plan_of(SelectiveRecompute(select="ratio"), step, tight)
    assert plan.notes == {"dropped": 1}
    assert plan_of(SelectiveRecompute(select="ratio"), step, machine(step.live_peak)) == MemoryPlan()


def test_a_step_without_attention_says_that_there_is_nothing_to_do():
    for select in ("attention", "full"):
        plan = plan_of(SelectiveRecompute(select=select), chain(4), machine())
        assert plan == MemoryPlan(notes={"reason": ABSENT})


def fused_layers(count: int):
    """Layers of a fused attention between two projections and a residual; each saves its input and two larger
    tensors.
    """
    rows = [("load", F, 1.0, [], ["x0"])]
    for i in range(count):
        rows += [
            ("linear_in", F, 2.0, [f"x{i}", "w"], [f"q{i}"]),
            ("scaled_dot_product", F, 2.0, [f"q{i}"], [f"a{i}"]),
            ("linear_out", F, 2.0, [f"x{i}", f"a{i}", "w"], [f"x{i + 1}"]),
        ]
    rows += [("head", F, 2.0, [f"x{count}", "w"], ["l"]), ("head_backward", B, 2.0, ["l", "w"], ["g"])]
    for i in reversed(range(count)):
        rows += [
            ("linear_out_backward", B, 2.0, ["g", f"a{i}", "w"], ["g"]),
            ("scaled_dot_product_backward", B, 2.0, ["g", f"q{i}", f"a{i}"], ["g"]),
            ("linear_in_backward", B, 2.0, ["g", f"x{i}", "w"], ["g"]),
        ]
    large = {f"{name}{i}": 9 for i in range(count) for name in "qa"}
    return make_step(rows, {"w": 1, "l": 1, "g": 1, **{f"x{i}": 4 for i in range(count + 1)}, **large}, ["w"])


def test_with_offload_a_layers_input_waits_on_the_host_and_returns_one_layer_ahead():
    step = fused_layers(4)
    plan = plan_of(SelectiveRecompute(select="full", offload=True), step, machine())
    assert violations(plan, step, machine()) == []
    reruns = [move.at for move in plan.moves if isinstance(move, Recompute)]
    back = {step.tensors.name[m.tensor]: m.at for m in plan.moves if isinstance(m, Prefetch)}
    out = {step.tensors.name[m.tensor]: m.at for m in plan.moves if isinstance(m, Offload)}
    assert reruns == [15, 18, 21, 24]  # where the backward pass of each begins; the head does not run again
    assert back == {"x3": 15, "x2": 15, "x1": 18, "x0": 21}
    assert out == {"x0": 4, "x1": 7, "x2": 10, "x3": 13}  # once the last op of their layer has read them


def test_offload_changes_where_inputs_wait_and_not_what_runs_again():
    step = fused_layers(6)
    fast = machine(bandwidth=1e6)
    kept, sent = (
        Simulator(step, fast).run(plan_of(SelectiveRecompute(select="full", offload=offload), step, fast))
        for offload in (False, True)
    )
    assert sent.recompute_time == kept.recompute_time
    assert (sent.moved_bytes["out"], sent.moved_bytes["back"]) == (6 * 4, 6 * 4)
    # Of six inputs all but those of the last layer and of the one before it are away at the fullest op.
    assert kept.peak_bytes - sent.peak_bytes == 4 * 4


@pytest.mark.parametrize("select", ["attention", "ratio"])
def test_only_whole_layers_have_inputs_to_offload(select):
    with pytest.raises(BadInput, match=r"offload.*full"):
        registry.create("memory", "selective_recompute", {"select": select, "offload": True})
