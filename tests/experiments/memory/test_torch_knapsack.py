"""The activation memory budget: knapsacks and cuts that can be worked out by hand."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core.budget import ENDED_AT
from experiments.memory.interface import MemoryPlan, Recompute, violations
from experiments.memory.planning.milp import MixedIntegerProgram
from experiments.memory.policies.torch_knapsack import Partition, TorchKnapsack
from experiments.memory.policies.torch_knapsack.knapsack import IntegerKnapsack, dynamic, greedy
from experiments.memory.policies.torch_knapsack.mincut import ForwardGraph
from experiments.memory.simulator import Simulator
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
    plan = plan_of(TorchKnapsack(budget=budget, solver=solver, reruns="once"), step, machine())
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
