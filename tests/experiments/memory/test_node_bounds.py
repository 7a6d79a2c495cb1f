"""Planners that end at HiGHS's nodes return the best so far and say so, in their notes or in the reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from experiments.core.budget import ENDED_AT
from experiments.core.errors import Infeasible
from experiments.memory.experiment.planned import infeasible_result
from experiments.memory.interface import DeviceView, MemoryMachine, MemoryPlan, violations
from experiments.memory.planning.milp import MixedIntegerProgram, NodeBound
from experiments.memory.policies.autotm import AutoTM
from experiments.memory.policies.checkmate import Checkmate
from experiments.memory.policies.tmof import Tmof
from experiments.memory.simulator import Simulator
from experiments.workloads.step import Step
from tests.experiments.memory.steps import chain, machine, make_step, plan_of

BOUND = "the search ended at its bound of 1 nodes (knob nodes) with the best so far"
ENOUGH = 10**5


def drawn(layers: int, seed: int) -> Step:
    """A chain whose sizes and times no rounding of a relaxed program meets."""
    random = np.random.default_rng(seed)
    kib, seconds = random.integers(1, 50, layers).tolist(), random.integers(1, 9, 2 * layers).tolist()
    rows: list[Any] = []
    for i in range(layers):
        rows.append((f"layer_{i}", "forward", float(seconds[i]), [f"a{i - 1}"] if i else [], [f"a{i}"]))
    for i in reversed(range(layers)):
        reads = [f"a{i}", *([f"g{i + 1}"] if i < layers - 1 else [])]
        rows.append((f"back_{i}", "backward", float(seconds[layers + i]), reads, [f"g{i}"]))
    return make_step(rows, {f"{kind}{i}": 1024 * size for i, size in enumerate(kib) for kind in "ag"})


def swap_plan(policy: Tmof, step: Step, on: MemoryMachine) -> MemoryPlan:
    simulator = Simulator(step, on)
    view = DeviceView(on, simulator.estimate, np.random.default_rng(0), simulator.split)
    return policy.share(step, view, None).plans[0]


def autotm(step: Step, on: MemoryMachine, nodes: int) -> MemoryPlan:
    return plan_of(AutoTM(least_bytes=1, nodes=nodes, gap=0.0), step, on)


def tmof(step: Step, on: MemoryMachine, nodes: int) -> MemoryPlan:
    return swap_plan(Tmof(selection="offline", least_bytes=1, nodes=nodes), step, on)


def checkmate(step: Step, on: MemoryMachine, nodes: int) -> MemoryPlan:
    return plan_of(Checkmate(groups=10, nodes=nodes, gap=0.0), step, on)


#: Planner, the seed of its step, the tenths of its peak that the device has, and bytes a second of the link.
CASES = [(autotm, 0, 4, 1e4), (tmof, 0, 4, 1e4), (checkmate, 1, 6, 1e4)]


@pytest.mark.parametrize(("planner", "seed", "tenths", "bandwidth"), CASES)
def test_a_planner_that_ends_at_one_node_has_a_plan_and_says_so(
    planner: Any, seed: int, tenths: int, bandwidth: float
) -> None:
    step = drawn(20, seed)
    on = machine(step.live_peak * tenths // 10, bandwidth=bandwidth)
    plan = planner(step, on, 1)
    assert plan.notes[ENDED_AT] == BOUND
    assert plan.moves and violations(plan, step, on) == []


@pytest.mark.parametrize("planner", [planner for planner, *_ in CASES])
def test_a_planner_that_ends_by_itself_says_nothing(planner: Any) -> None:
    step = drawn(8, 1)
    assert ENDED_AT not in planner(step, machine(step.live_peak * 8 // 10, bandwidth=1e4), ENOUGH).notes


def equalities() -> MixedIntegerProgram:
    """Three sums of many numbers that must be met to the last digit: no solution is found at the root."""
    random = np.random.default_rng(0)
    program, weights = MixedIntegerProgram(), random.integers(100, 10**5, (3, 60))
    items = [program.binary() for _ in range(60)]
    for row in weights:
        total = float(row[random.random(60) < 0.5].sum())
        program.row([(i, float(w)) for i, w in zip(items, row, strict=True)], total, total)
    return program


def test_a_program_without_a_solution_at_its_bound_differs_from_one_that_has_none() -> None:
    bound = NodeBound(1)
    assert equalities().solve(bound) is None and bound.caveat() == {ENDED_AT: BOUND}
    impossible, settled = MixedIntegerProgram(), NodeBound(1)
    impossible.row([(impossible.binary(), 1.0)], at_least=2.0)
    assert impossible.solve(settled) is None and settled.caveat() == {}


def test_where_no_plan_was_found_the_reason_says_that_the_search_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none_found(program: MixedIntegerProgram, bound: NodeBound, *_: Any, **__: Any) -> None:
        bound.ended_early = True

    monkeypatch.setattr(MixedIntegerProgram, "solve", none_found)
    step = drawn(8, 1)
    for planner in (autotm, tmof):
        with pytest.raises(Infeasible, match=r"within the limit; the search ended .* 1 nodes"):
            planner(step, machine(step.live_peak * 8 // 10), 1)


def test_a_plan_that_does_not_fit_says_in_the_reason_that_the_search_ended() -> None:
    plan = MemoryPlan(notes={ENDED_AT: BOUND})
    found = infeasible_result(Infeasible("5 bytes are missing", "op 3"), plan, chain(2), "")
    assert found.reason == f"op 3: 5 bytes are missing; {BOUND}; with nothing moved the step needs 3 B"
