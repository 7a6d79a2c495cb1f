"""SwapAdvisor: Belady's swaps in two passes, orders and layouts that stay legal, and a search that only
improves.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.core import machine_code
from experiments.core.errors import Infeasible
from experiments.memory.interface import MemoryPlan, Offload, PlaceTensor, Prefetch, violations
from experiments.memory.interface.transform import order_fault
from experiments.memory.policies.swapadvisor import SwapAdvisor, moves_of, pool_of, selection
from experiments.memory.policies.swapadvisor.belady import Problem, step_time, swaps_of
from experiments.memory.policies.swapadvisor.precedence import Precedence
from experiments.memory.policies.swapadvisor.size_classes import Layout, SizeClasses, power_of_two
from experiments.memory.simulator import Simulator
from tests.experiments.memory.steps import chain, machine, make_step, plan_of

KIB = 1024


def cyclic():
    """Parameters used in the order a b c a, one at a time; each fills an object."""
    rows = [(f"use_{i}", "forward", 1.0, [name], []) for i, name in enumerate("abca")]
    return make_step(rows, dict.fromkeys("abc", 512), persistent="abc")


def test_two_passes_over_a_b_c_a_with_two_objects_end_differently_and_are_restored():
    # The first pass ends with a and c (b, used last, makes way for c). The second begins with these, evicts c
    # for b and b for c ... and must put back what it began with.
    step = cyclic()
    problem = Problem(step, machine(bandwidth=512.0))
    schedule = swaps_of(problem, range(4), [0, 0, 0], [2])
    assert schedule.start.tolist() == [True, False, True]
    assert schedule.resident.tolist() == schedule.start.tolist()
    on = machine(1024, bandwidth=512.0)
    plan = MemoryPlan(moves_of(problem, schedule))
    assert PlaceTensor(0, 1) in plan.moves and PlaceTensor(0, 0) not in plan.moves
    assert violations(plan, step, on) == []


def test_the_farthest_next_use_leaves_right_after_its_last_use():
    # Two objects; x is used again last, so that it makes way for z, and leaves when op 0 has ended.
    rows = [
        ("make_x", "forward", 1.0, [], ["x"]),
        ("make_y", "forward", 1.0, [], ["y"]),
        ("make_z", "forward", 1.0, [], ["z"]),
        ("use_y", "backward", 1.0, ["y"], []),
        ("use_z", "backward", 1.0, ["z"], []),
        ("use_x", "backward", 1.0, ["x"], []),
    ]
    step = make_step(rows, dict.fromkeys("xyz", 512))
    problem = Problem(step, machine(bandwidth=512.0))
    schedule = swaps_of(problem, range(6), [0, 0, 0], [2])
    assert schedule.departures.tolist() == [[1, 0, False]]
    # y dies with op 3: from op 4 on its object can take x, which is needed by op 5.
    assert schedule.returns[:, :3].tolist() == [[4, 0, 5]]
    # x leaves 1-2, op 2 needs no wait; x returns 4-5.
    assert step_time(problem, range(6), schedule) == 6.0
    assert swaps_of(problem, range(6), [0, 0, 0], [0]) is None


@pytest.mark.parametrize("has_compiler", [True, False])
def test_compiled_or_not_a_search_finds_the_same(monkeypatch, has_compiler):
    machine_code._compile.cache_clear()
    if not has_compiler:
        monkeypatch.setitem(sys.modules, "numba", None)
    step, on = scaled_chain(), machine(10 * 512, bandwidth=300.0)
    plain = plan_of(SwapAdvisor(evaluations=60), step, on)
    monkeypatch.setattr("experiments.memory.policies.swapadvisor.belady.MANY", 0)
    assert plan_of(SwapAdvisor(evaluations=60), step, on) == plain
    machine_code._compile.cache_clear()


@pytest.mark.parametrize("capacity", [20, 14, 10])
def test_the_inner_simulation_agrees_with_the_simulator(capacity):
    step = scaled_chain()
    on = machine(capacity * 512, bandwidth=700.0)
    plan = plan_of(SwapAdvisor(evaluations=40), step, on)
    assert violations(plan, step, on) == []
    done = Simulator(step, on).run(plan)
    assert done.peak_bytes <= capacity * 512
    assert done.step_time == pytest.approx(plan.notes["predicted_time"], rel=0.02)


def scaled_chain():
    """The chain of 24 layers with a granule instead of a byte."""
    step = chain(24)
    step.tensors.bytes[:] *= 512
    return step


def test_the_best_time_never_rises_and_a_seed_gives_one_plan():
    step, on = scaled_chain(), machine(12 * 512, bandwidth=300.0)
    plan = plan_of(SwapAdvisor(evaluations=150, population=12), step, on)
    best = plan.notes["best_by_generation"]
    assert best == sorted(best, reverse=True)
    assert plan.notes["evaluations"] == 150
    assert plan.notes["predicted_time"] <= plan.notes["first_time"]
    assert plan_of(SwapAdvisor(evaluations=150, population=12), step, on) == plan


def branches():
    """Ops 1 and 2 are free to change places; op 3 writes what op 1 reads."""
    rows = [
        ("source", "forward", 1.0, [], ["x"]),
        ("left", "forward", 1.0, ["x"], ["l"]),
        ("right", "forward", 1.0, [], ["r"]),
        ("update", "forward", 1.0, ["x"], ["x"]),
        ("join", "forward", 1.0, ["l", "r", "x"], ["y"]),
    ]
    return make_step(rows, dict.fromkeys("xlry", 512))


def test_reads_follow_writes_and_writes_follow_every_use_before_them():
    precedence = Precedence(branches())
    assert precedence.allows([0, 1, 2, 3, 4]) and precedence.allows([2, 0, 1, 3, 4])
    assert not precedence.allows([0, 2, 3, 1, 4])  # left would read what update wrote
    assert not precedence.allows([1, 0, 2, 3, 4])
    assert precedence.cross([2, 0, 1, 3, 4], [0, 1, 2, 3, 4], 1) == (2, 0, 1, 3, 4)


@given(st.integers(0, 1000), st.floats(0, 1))
def test_mutated_orders_compute_the_same(seed, chance):
    step = chain(6)
    precedence, random = Precedence(step), np.random.default_rng(seed)
    order = precedence.mutate(range(len(step.ops)), chance, random)
    assert precedence.allows(order)
    position = {op: at for at, op in enumerate(order)}
    assert order_fault(step, [position[op] for op in range(len(order))]) is None


def test_without_chance_a_mutation_keeps_the_order():
    precedence = Precedence(branches())
    assert precedence.mutate((2, 0, 1, 3, 4), 0.0, np.random.default_rng(0)) == (2, 0, 1, 3, 4)


def test_classes_are_powers_of_two_and_keep_within_the_capacity():
    assert [power_of_two(size) for size in (1, 512, 513, 3 * KIB)] == [512, 512, 1024, 4096]
    step = scaled_chain()
    classes = SizeClasses(step, 12 * 512, exact=False)
    assert classes.bytes == [512]
    assert classes.first() == Layout((0,), (12,))
    random = np.random.default_rng(0)
    layout = classes.first()
    for _ in range(20):
        layout = classes.mutate(layout, 0.5, random)
        assert classes.total(np.array(layout.counts)) <= 12 * 512
        assert (np.array(layout.counts) >= classes.least(layout.serves)).all()
    assert pool_of(step, classes, layout).classes == ((512, 12),)


def test_a_slower_parent_is_chosen_less_often_and_an_impossible_one_never():
    chances = selection([1.0, 2.0, float("inf")])
    assert chances[0] / chances[1] == pytest.approx(np.e)
    assert chances[2] == 0 and chances.sum() == pytest.approx(1)


def test_nothing_moves_where_all_fits_and_too_few_objects_are_named():
    step = scaled_chain()
    assert plan_of(SwapAdvisor(), step, machine(step.live_peak)) == MemoryPlan()
    with pytest.raises(Infeasible, match="objects"):
        plan_of(SwapAdvisor(), step, machine(2 * 512))


def test_moves_name_the_plans_own_order():
    step, on = scaled_chain(), machine(10 * 512, bandwidth=300.0)
    plan = plan_of(SwapAdvisor(evaluations=30, reorder=False), step, on)
    assert plan.order == () and plan.space.kind == "classes"
    kinds = {type(move) for move in plan.moves}
    assert kinds == {Offload, Prefetch}
