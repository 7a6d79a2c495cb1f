"""Checkmate's program against enumeration, and its plans."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core.errors import Infeasible
from experiments.memory.interface import Drop, Lineage, MemoryPlan, Recompute, violations
from experiments.memory.planning.milp import NodeBound
from experiments.memory.planning.rematerialize import with_drops
from experiments.memory.policies.checkmate import Checkmate
from experiments.memory.policies.checkmate.coarse import coarse, group_ends
from experiments.memory.policies.checkmate.remat_program import (
    GroupValue,
    Problem,
    complete,
    fits,
    solve_by_rounding,
    solve_exactly,
)
from experiments.memory.policies.checkpoint import Checkpoint
from experiments.memory.policies.dtr import Dtr
from experiments.memory.simulator import Simulator
from tests.experiments.memory.every_schedule import least_reruns
from tests.experiments.memory.steps import chain, machine, make_step, plan_of
from tests.experiments.memory.test_simulator import steps


def linear(room: float, seconds=(1.0, 2.0, 3.0, 4.0), sizes=(4.0, 3.0, 2.0, 1.0)) -> Problem:
    """A chain of groups, each reading the value before it, and as many stages, last group first."""
    count = len(seconds)
    values = [GroupValue(i, sizes[i], i + 2) for i in range(count)]
    return Problem(
        seconds=seconds,
        scratch=[0.5] * count,
        inputs=[[i - 1] if i else [] for i in range(count)],
        values=values,
        forward=[room] * count,
        stages=[room] * count,
        required=[[i, i - 1] if i else [0] for i in reversed(range(count))],
    )


def enumerated(problem: Problem) -> float:
    """The least cost over all S."""
    shape = (len(problem.stages), len(problem.values))
    best = float("inf")
    for bits in itertools.product((False, True), repeat=shape[0] * shape[1]):
        schedule = complete(problem, np.array(bits).reshape(shape))
        if fits(problem, schedule):
            best = min(best, schedule.seconds(problem))
    return best


@pytest.mark.parametrize("room", [10.0, 9.0, 8.0, 7.5])
def test_the_program_finds_what_enumeration_finds(room):
    problem = linear(room, (1.0, 2.0, 3.0), (4.0, 3.0, 2.0))
    best = enumerated(problem)
    found = solve_exactly(problem, NodeBound(10_000), gap=0.0)
    if best == float("inf"):
        assert found is None
    else:
        assert found is not None and found[1].proven
        assert found[0].seconds(problem) == best
        assert fits(problem, found[0])


def test_with_room_for_everything_nothing_runs_again():
    problem = linear(10.0)
    found = solve_exactly(problem, NodeBound(100), 0.0)
    assert found is not None and found[0].seconds(problem) == 0
    relaxed = solve_by_rounding(problem, share=1.0)
    assert relaxed is not None and relaxed.seconds(problem) == 0


def test_less_room_never_costs_less_and_too_little_has_no_schedule():
    costs = []
    for room in (10.0, 9.0, 8.0, 7.5):
        found = solve_exactly(linear(room), NodeBound(10_000), 0.0)
        costs.append(found[0].seconds(linear(room)) if found else float("inf"))
    assert costs == sorted(costs) and costs[0] == 0 and costs[-1] > 0
    assert solve_exactly(linear(3.0), NodeBound(100), 0.0) is None


def test_rounding_gives_a_schedule_that_fits_and_is_no_better_than_the_program():
    problem = linear(8.0)
    found, quick = solve_exactly(problem, NodeBound(10_000), 0.0), solve_by_rounding(problem)
    assert found is not None
    assert quick is None or (fits(problem, quick) and quick.seconds(problem) >= found[0].seconds(problem))


def test_a_chain_is_cut_into_groups_of_equal_weight():
    ends = group_ends(chain(12), 4)
    assert len(ends) == 4 and ends[-1] == 12
    small = coarse(chain(12), 100, 4)
    assert sum(value.bytes for value in small.problem.values) == 12


@pytest.mark.parametrize("capacity", [16, 13, 11])
def test_plans_fit_and_cost_no_more_than_the_square_root(capacity):
    step, on = chain(16), machine(capacity)
    plan = plan_of(Checkmate(groups=8), step, on)
    assert violations(plan, step, on) == []
    done = Simulator(step, on).run(plan)
    assert done.peak_bytes <= capacity
    assert done.recompute_time <= 12  # every fourth layer kept
    assert any(isinstance(move, Recompute) for move in plan.moves)


def test_where_the_program_has_no_schedule_checkpointing_takes_over():
    step = chain(16)
    assert plan_of(Checkmate(), step, machine(2)).notes["solved_by"] == "checkpoint"
    assert plan_of(Checkmate(), step, machine(step.live_peak)) == MemoryPlan()
    assert (
        plan_of(Checkmate(variant="rounding", groups=8), step, machine(14)).notes["solved_by"] == "rounding"
    )


@st.composite
def chains(draw, layers):
    """A chain of layers with sizes, seconds and scratch of their own, some reading an earlier one as well.

    Its backward pass has gradients of their own, or one that is turned about.
    """
    count = draw(st.integers(1, layers))
    in_place = draw(st.booleans())
    seconds = st.integers(1, 5).map(float)
    sizes, rows = {"x": 0}, []
    for i in range(count):
        reads = [f"a{i - 1}" if i else "x"]
        if i > 1 and draw(st.booleans()):
            reads.append(f"a{draw(st.integers(0, i - 2))}")
        sizes[f"a{i}"] = draw(st.integers(1, 4))
        rows.append((f"layer_{i}", "forward", draw(seconds), reads, [f"a{i}"]))
    gradient = "g"
    sizes[gradient] = draw(st.integers(1, 3))
    rows.append(("loss", "backward", draw(seconds), [f"a{count - 1}"], [gradient]))
    for i in reversed(range(count)):
        after = "g" if in_place else f"g{i}"
        sizes.setdefault(after, draw(st.integers(1, 3)))
        reads = [gradient, *([f"a{i}"] if draw(st.booleans()) else []), f"a{i - 1}" if i else "x"]
        rows.append((f"back_{i}", "backward", draw(seconds), reads, [after]))
        gradient = after
    step = make_step(rows, sizes, persistent=["x"])
    scratch = np.array([draw(st.integers(0, 2)) for _ in rows], np.int64)
    return replace(step, ops=replace(step.ops, workspace=scratch))


def is_the_cheapest(step, capacity):
    on = machine(capacity)
    best = least_reruns(step, capacity)
    plan = plan_of(Checkmate(), step, on)
    if best == float("inf"):
        with pytest.raises(Infeasible):
            Simulator(step, on).run(plan)
        return
    assert violations(plan, step, on) == []
    done = Simulator(step, on).run(plan)
    assert done.peak_bytes <= capacity
    assert done.recompute_time == pytest.approx(best)
    assert not plan.moves or "of all schedules" in plan.notes["proven"]


@settings(max_examples=40, deadline=None)
@given(chains(3))
def test_chains_of_up_to_eight_ops_cost_what_exhaustive_search_finds_at_every_budget(step):
    assert len(step.ops) <= 8
    for capacity in range(1, step.live_peak + 1):
        is_the_cheapest(step, capacity)


@settings(max_examples=25, deadline=None)
@given(chains(6), st.floats(0.2, 1.0))
def test_longer_chains_cost_what_exhaustive_search_finds(step, share):
    is_the_cheapest(step, max(1, int(step.live_peak * share)))


def test_a_value_that_a_late_layer_reads_is_made_again_during_the_forward_pass():
    # a is large and read by the first and the last layer; between them b and c need the room.
    rows = [
        ("a", "forward", 1.0, ["x"], ["a"]),
        ("b", "forward", 9.0, ["a"], ["b"]),
        ("c", "forward", 9.0, ["b"], ["c"]),
        ("d", "forward", 9.0, ["a", "c"], ["d"]),
        ("back", "backward", 1.0, ["d"], ["g"]),
    ]
    step = make_step(rows, {"x": 0, "a": 4, "b": 4, "c": 4, "d": 1, "g": 1}, persistent=["x"])
    plan = plan_of(Checkmate(), step, machine(9))
    a = step.tensors.name.index("a")
    assert plan.moves == (Drop(2, a), Recompute(3, (0,), (a,)))
    assert Simulator(step, machine(9)).run(plan).peak_bytes == 9


def test_a_tensor_leaves_where_its_gap_is_only_the_reruns_of_one_op():
    # a is read by the ops 2 and 3; between them it is gone while b is made again.
    rows = [
        ("a", "forward", 1.0, ["x"], ["a"]),
        ("b", "forward", 1.0, ["x"], ["b"]),
        ("start", "backward", 1.0, ["a"], ["g"]),
        ("use", "backward", 1.0, ["a", "b", "g"], ["h"]),
    ]
    step = make_step(rows, {"x": 0, "a": 2, "b": 2, "g": 1, "h": 1}, persistent=["x"])
    rerun = Recompute(3, (0, 1), (1, 2))
    assert with_drops(step, Lineage(step), [rerun]) == (Drop(3, 1), Drop(2, 2), rerun)


def test_no_more_groups_are_made_than_ops_and_no_fewer_where_there_are_enough():
    assert group_ends(chain(6), 12) == tuple(range(7))
    assert len(group_ends(chain(12), 4)) == 4


@given(st.lists(st.integers(0, 9), min_size=2, max_size=20), st.integers(2, 12))
def test_there_are_as_many_groups_as_asked_for_or_one_for_each_op(seconds, most):
    rows = [(f"op_{i}", "forward", float(s), ["x"], [f"a{i}"]) for i, s in enumerate(seconds)]
    rows.append(("back", "backward", 1.0, [f"a{i}" for i in range(len(seconds))], ["g"]))
    step = make_step(rows, {"x": 0, **{f"a{i}": s for i, s in enumerate(seconds)}, "g": 1}, persistent=["x"])
    ends = group_ends(step, most)
    assert len(ends) == min(most, len(seconds)) and list(ends) == sorted(set(ends))
    assert ends[-1] == len(seconds) - 1


def test_the_answer_names_what_was_proved():
    notes = plan_of(Checkmate(), chain(16), machine(13)).notes
    assert notes["solved_by"] != "milp" or "of 12 groups" in notes["proven"]
    small = plan_of(Checkmate(), chain(6), machine(5)).notes
    assert small["proven"] == "of all schedules of 14 ops"


@settings(max_examples=25, deadline=None)
@given(steps(), st.sampled_from([0.5, 0.7, 0.9]), st.sampled_from([3, 12]))
def test_never_slower_than_checkpointing_or_online_eviction_where_those_fit(step, share, groups):
    on = machine(max(int(step.live_peak * share), int(step.op_need.max())))
    ours = time_of(Checkmate(groups=groups), step, on)
    for other in (Checkpoint(), Checkpoint(variant="search"), Dtr(), Dtr(heuristic="full")):
        assert ours <= time_of(other, step, on) * (1 + 1e-9)


def time_of(policy, step, on):
    try:
        return Simulator(step, on).run(plan_of(policy, step, on)).step_time
    except Infeasible:
        return float("inf")
