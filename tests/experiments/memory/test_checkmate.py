"""Checkmate's program against enumeration, and its plans."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from experiments.memory.interface import MemoryPlan, Recompute, violations
from experiments.memory.planning.milp import NodeBound
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
from experiments.memory.simulator import Simulator
from tests.experiments.memory.steps import chain, machine, plan_of


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
