"""Plans that change the step: another order of its ops, tensors that take over memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.core.errors import BadInput
from experiments.memory.interface import MemoryPlan
from experiments.memory.interface.plan import load_plan
from experiments.memory.interface.transform import overlaid, reordered, transformed
from experiments.workloads.step import Step
from tests.experiments.memory.steps import make_step

# Two branches from x: a then c, b then d; e joins them.
STEP = make_step(
    [
        ("a", "forward", 1.0, ("x",), ("a",)),
        ("b", "forward", 2.0, ("x",), ("b",)),
        ("c", "forward", 3.0, ("a",), ("c",)),
        ("d", "forward", 4.0, ("b",), ("d",)),
        ("e", "backward", 5.0, ("c", "d"), ("e",)),
    ],
    {"x": 10, "a": 100, "b": 100, "c": 10, "d": 10, "e": 10},
    persistent=("x",),
)


def test_branches_may_run_one_after_the_other() -> None:
    done = reordered(STEP, (0, 2, 1, 3, 4))
    assert done.ops.name == ("a", "c", "b", "d", "e")
    assert done.ops.seconds.tolist() == [1.0, 3.0, 2.0, 4.0, 5.0]
    assert (STEP.live_peak, done.live_peak) == (10 + 210, 10 + 10 + 100 + 10)
    assert done.seconds == STEP.seconds


def test_a_release_moves_with_its_op() -> None:
    held = replace(STEP, release=np.array([-1, 3, -1, -1, -1, -1]))  # tensor a, behind d
    assert held.death[1] == 3
    done = reordered(held, (1, 3, 0, 2, 4))  # b d a c e
    assert done.release is not None and done.release.tolist() == [-1, 1, -1, -1, -1, -1]
    assert done.death[1] == 3  # its last use, c, is later now


@pytest.mark.parametrize("order", [(2, 0, 1, 3, 4), (0, 1, 2, 4, 3), (4, 0, 1, 2, 3)])
def test_nothing_runs_before_what_it_reads(order: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match=r"plan.order.*passes"):
        reordered(STEP, order)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 0, 1, 2, 3), (0, 1, 2, 3, 5)])
def test_an_order_names_every_op_once(order: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match="permutation"):
        reordered(STEP, order)


def in_place() -> Step:
    rows = [("r", "forward", 1.0, ("x",), ("y",)), ("w", "forward", 1.0, ("x",), ("x",))]
    return make_step(
        [*rows, ("s", "forward", 1.0, ("x",), ("z",))], dict.fromkeys("xyz", 1), persistent=("x",)
    )


@pytest.mark.parametrize("order", [(1, 0, 2), (0, 2, 1)])
def test_reads_stay_on_their_side_of_a_write_in_place(order: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match="passes"):
        reordered(in_place(), order)


def test_random_ops_draw_in_turn() -> None:
    random = replace(STEP, ops=replace(STEP.ops, random=np.array([True, True, False, False, False])))
    with pytest.raises(BadInput, match="random"):
        reordered(random, (1, 0, 2, 3, 4))


def chain(count: int, size: int) -> Step:
    """x0 .. forward; in backward g(i) is made from x(i) and g(i+1), and x(i) dies with that."""
    rows = [("f0", "forward", 1.0, ["in"], ["x0"])]
    rows += [(f"f{i}", "forward", 1.0, [f"x{i - 1}"], [f"x{i}"]) for i in range(1, count)]
    rows += [(f"b{i}", "backward", 1.0, [f"x{i}"], [f"g{i}"]) for i in reversed(range(count))]
    return make_step(
        rows, {"in": 1, **{f"{k}{i}": size for k in "xg" for i in range(count)}}, persistent=("in",)
    )


def test_a_gradient_over_the_activation_it_comes_from_needs_no_memory() -> None:
    step = chain(4, 100)
    ids = {name: i for i, name in enumerate(step.tensors.name)}
    pairs = tuple((ids[f"g{i}"], ids[f"x{i}"]) for i in range(4))
    assert step.live_peak == 1 + 500
    assert overlaid(step, pairs).live_peak == 1 + 400


def test_what_is_needed_later_cannot_be_overlaid() -> None:
    step = chain(4, 100)
    ids = {name: i for i, name in enumerate(step.tensors.name)}
    with pytest.raises(BadInput, match="still used by op 7"):
        overlaid(step, ((ids["g3"], ids["x0"]),))
    with pytest.raises(BadInput, match="persistent"):
        overlaid(step, ((ids["g3"], ids["in"]),))
    with pytest.raises(BadInput, match="twice"):
        overlaid(step, ((ids["g2"], ids["x3"]), (ids["g1"], ids["x3"])))


def test_a_plan_carries_both_through_json() -> None:
    plan = MemoryPlan(order=(0, 2, 1, 3, 4), overlays=((5, 3),))
    assert load_plan(plan.to_json()) == plan
    done = transformed(STEP, plan)
    assert done.ops.name == ("a", "c", "b", "d", "e")
    assert transformed(STEP, MemoryPlan()) is STEP
