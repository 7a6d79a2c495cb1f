"""The activation memory budget: knapsacks and cuts that can be worked out by hand."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core import registry
from experiments.core.budget import ENDED_AT
from experiments.core.errors import BadInput
from experiments.core.progress import silent
from experiments.core.spec import load_workload
from experiments.hardware import resolve
from experiments.memory.interface import MemoryPlan, Recompute, machine_of, violations
from experiments.memory.planning.milp import MixedIntegerProgram
from experiments.memory.policies.torch_knapsack import Partition, TorchKnapsack
from experiments.memory.policies.torch_knapsack.knapsack import IntegerKnapsack, dynamic, greedy
from experiments.memory.policies.torch_knapsack.mincut import ForwardGraph
from experiments.memory.simulator import Simulator
from experiments.sources import step_of
from tests.experiments.memory.steps import machine, make_step, plan_of

F, B = "forward", "backward"


def test_greedy_takes_the_densest_and_misses_the_best_pair():
    weights, values = [0.5, 0.4, 0.3, 0.3], [10, 9, 6, 6]
    assert greedy(weights, values, 0.6) == [1]
    assert dynamic(weights, values, 0.6) == IntegerKnapsack()(weights, values, 0.6) == [2, 3]


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 9)), max_size=6), st.integers(0, 20))
def test_the_exact_solvers_find_the_best_of_all_subsets(items, capacity):
    weights, values = [w / 20 for w, _ in items], [float(v) for _, v in items]
    subsets = [s for n in range(len(items) + 1) for s in itertools.combinations(range(len(items)), n)]
    best = max(sum(values[i] for i in s) for s in subsets if sum(items[i][0] for i in s) <= capacity)
    for solver in (dynamic, IntegerKnapsack()):
        chosen = solver(weights, values, capacity / 20)
        assert sum(items[i][0] for i in chosen) <= capacity
        assert sum(values[i] for i in chosen) == best
    assert sum(values[i] for i in greedy(weights, values, capacity / 20)) <= best


def graph(needed, sizes) -> ForwardGraph:
    """0 -> 1 -> 2 -> 3."""
    return ForwardGraph([0, 1, 2, 3], {0: [], 1: [0], 2: [1], 3: [2]}, needed, sizes, frozenset())


def test_the_narrow_place_before_two_wide_tensors_is_saved():
    # 2 and 3 are 10 bytes each and read by the backward pass; both can be made from 1, which is 4.
    narrow = graph({2, 3}, {0: 100, 1: 4, 2: 10, 3: 10})
    assert narrow.minimum_cut(banned=set()) == [1]
    assert narrow.minimum_cut(banned={2}) == [2]  # 3 is made from 2
    assert narrow.minimum_cut(banned={2, 3}) == [2, 3]


def test_a_saved_tensor_weighs_more_the_further_it_is_from_its_reader():
    # 1 is 9 bytes, one step further away: 9 x 1.21 against 10 x 1.1.
    assert graph({2}, {0: 100, 1: 9, 2: 10, 3: 1}).minimum_cut(set()) == [1]
    assert graph({2}, {0: 100, 1: 9.5, 2: 10, 3: 1}).minimum_cut(set()) == [2]


def perceptron(layers: int):
    """Linear and ReLU in turn; backward reads the ReLU's input and output."""
    rows = [("load", F, 1.0, [], ["x"]), ("relu", F, 1.0, ["x"], ["r0"])]
    for i in range(layers):
        rows.append(("linear", F, 8.0 + i, [f"r{i}", "w"], [f"a{i}"]))
        rows.append(("relu", F, 1.0, [f"a{i}"], [f"r{i + 1}"]))
    rows.append(("loss", F, 1.0, [f"r{layers}"], ["g"]))
    for i in reversed(range(layers)):
        rows.append(("relu_backward", B, 1.0, ["g", f"r{i + 1}", f"a{i}"], ["g"]))
        rows.append(("linear_backward", B, 8.0, ["g", f"r{i}", "w"], ["g"]))
    sizes = {"x": 2, "w": 1, "g": 1, **{f"r{i}": 10 for i in range(layers + 1)}}
    return make_step(rows, {**sizes, **{f"a{i}": 10 for i in range(layers)}}, persistent=["w"])


def test_a_full_budget_runs_only_cheap_ops_again():
    step = perceptron(3)
    plan = plan_of(TorchKnapsack(budget=1.0), step, machine())
    again = {step.ops.name[op] for move in plan.moves if isinstance(move, Recompute) for op in move.ops}
    assert again == {"relu"}


def test_what_torch_has_cut_already_is_the_default():
    step = perceptron(3)
    cut = replace(step, facts={**step.facts, "kernels": "compiled"})
    assert plan_of(TorchKnapsack(budget=1.0), step, machine()).moves
    assert plan_of(TorchKnapsack(budget=1.0), cut, machine()).moves == ()
    assert plan_of(TorchKnapsack(budget=0.4), cut, machine()).notes["saved_share"] < 0.4


def test_half_a_budget_saves_the_dearest_products():
    # Every linear output is a quarter of the saved bytes or more; the dearest are the last ones.
    step = perceptron(4)
    partition = Partition(step)
    names = [step.tensors.name[t] for t in partition.choose_saved(0.5, dynamic)]
    assert "a3" in names and "a0" not in names


@pytest.mark.parametrize("solver", ("dp", "greedy", "ilp"))
@pytest.mark.parametrize("budget", [0.0, 0.3, 0.6, 1.0])
def test_plans_are_legal_and_no_op_runs_again_twice(budget, solver):
    step = perceptron(5)
    plan = plan_of(TorchKnapsack(budget=budget, solver=solver), step, machine())
    assert violations(plan, step, machine()) == []
    runs = Counter(op for move in plan.moves if isinstance(move, Recompute) for op in move.ops)
    assert not runs or max(runs.values()) == 1


def test_without_a_budget_the_largest_that_fits_is_taken():
    step = perceptron(5)
    assert plan_of(TorchKnapsack(), step, machine(step.live_peak)) == MemoryPlan()
    plan = plan_of(TorchKnapsack(), step, machine(step.live_peak - 20))
    assert Simulator(step, machine(step.live_peak - 20)).run(plan).peak_bytes <= step.live_peak - 20


def test_a_knapsack_that_meets_its_bound_is_filled_greedily_and_says_so(monkeypatch):
    monkeypatch.setattr(MixedIntegerProgram, "solve", lambda *_, **__: None)
    knapsack = IntegerKnapsack(nodes=1)
    assert knapsack([0.5, 0.4, 0.2], [1.0, 3.0, 2.0], 0.61) == [1, 2] and knapsack.ended_early
    step = perceptron(5)
    plan = plan_of(TorchKnapsack(budget=0.5, solver="ilp", nodes=7), step, machine())
    assert violations(plan, step, machine()) == []
    assert "bound of 7 nodes (knob nodes)" in str(plan.notes[ENDED_AT])
    assert ENDED_AT not in plan_of(TorchKnapsack(budget=0.5), step, machine()).notes


def stack(blocks: int, modules: Sequence[str]):
    """``blocks`` perceptrons of two linear layers, after a stem; ``modules`` names what each is in."""
    rows = [("load", F, 1.0, [], ["x"]), ("linear", F, 8.0, ["x", "w"], ["h0"])]
    for i in range(blocks):
        rows += [
            ("linear", F, 8.0, [f"h{i}", "w"], [f"a{i}"]),
            ("relu", F, 1.0, [f"a{i}"], [f"r{i}"]),
            ("linear", F, 8.0, [f"r{i}", "w"], [f"o{i}"]),
            ("add", F, 1.0, [f"o{i}", f"h{i}"], [f"h{i + 1}"]),
        ]
    rows.append(("loss", F, 1.0, [f"h{blocks}"], ["g"]))
    for i in reversed(range(blocks)):
        rows += [
            ("linear_backward", B, 8.0, ["g", f"r{i}", "w"], ["g"]),
            ("relu_backward", B, 1.0, ["g", f"r{i}"], ["g"]),
            ("linear_backward", B, 8.0, ["g", f"h{i}", "w"], ["g"]),
        ]
    names = {f"{kind}{i}": 10 for i in range(blocks) for kind in "haro"}
    step = make_step(rows, {"x": 2, "w": 1, "g": 1, f"h{blocks}": 10, **names}, persistent=["w"])
    module = ["", "stem", *(modules[i // 4] for i in range(4 * blocks)), "loss"]
    module += [""] * (len(step.ops) - len(module))
    return replace(step, ops=replace(step.ops, module=tuple(module)))


LISTED = [f"layers.{i}.feed" for i in range(6)]


def test_every_repeated_block_is_compiled_by_itself_and_so_is_what_lies_between():
    step = stack(6, LISTED)
    regions = Partition(step).regions
    assert len(regions) == 1 + 6 + 1
    assert Partition(step, whole=True).read_by_others == []
    names = [step.tensors.name[t] for t in Partition(step).read_by_others]
    assert sorted(names) == [f"h{i}" for i in range(7)]


def test_blocks_without_a_twin_or_a_number_are_one_region():
    for modules in (["body"] * 6, [f"layer{i}" for i in range(6)], ["layers.0"] * 6):
        assert len(Partition(stack(6, modules)).regions) == 1


def test_blocks_of_other_sizes_with_the_same_ops_are_blocks_where_none_are_the_same():
    step = stack(3, LISTED[:3])
    sizes = step.tensors.bytes * np.arange(1, len(step.tensors) + 1)
    grown = replace(step, tensors=replace(step.tensors, bytes=sizes))
    assert len(Partition(grown).regions) == 1 + 3 + 1


def test_without_a_budget_to_spend_a_block_keeps_its_input_and_runs_once_more():
    step = stack(6, LISTED)
    plan = plan_of(TorchKnapsack(budget=0.0), step, machine())
    assert violations(plan, step, machine()) == [] and plan.notes["regions"] == 8
    runs = Counter(op for move in plan.moves if isinstance(move, Recompute) for op in move.ops)
    assert runs and max(runs.values()) == 1
    whole = plan_of(TorchKnapsack(budget=0.0, regions="whole"), step, machine())
    peaks = [Simulator(step, machine()).run(p).peak_bytes for p in (plan, whole)]
    # Inputs of six blocks and what is made again in one, against everything made again at once.
    assert peaks[0] <= 7 * 10 + 4 * 10 < peaks[1]


@pytest.mark.torch
def test_a_step_either_fits_with_each_op_run_once_more_at_most_or_not_at_all():
    pytest.importorskip("torch")
    hardware = resolve("v100-16g")
    workload = load_workload({"source": "zoo:gpt2-tiny", "options": {"batch": 16}})
    step, _ = step_of(workload, hardware.device, silent)
    for share in (0.9, 0.7, 0.5, 0.3):
        on = replace(machine_of(hardware), capacity=int(share * step.live_peak))
        plan = plan_of(TorchKnapsack(), step, on)
        assert violations(plan, step, on) == []
        runs = Counter(op for move in plan.moves if isinstance(move, Recompute) for op in move.ops)
        assert max(runs.values()) == 1
        seen = Simulator(step, on).estimate(plan)
        assert not seen.fits or seen.step_time < 1.4 * step.seconds
        assert seen.fits or share < 0.6  # the logits alone


def test_a_stored_spec_with_the_knob_of_before_is_told_what_to_do():
    with pytest.raises(BadInput, match="as in torch"):
        registry.create("memory", "torch_knapsack", {"reruns": "each"})
