"""Layrub: gradients over activations, and at most three activations resident whatever the depth."""

from __future__ import annotations

import pytest

from experiments.memory.interface import MemoryPlan, Prefetch, violations
from experiments.memory.interface.transform import transformed
from experiments.memory.policies.layrub import Layrub, overlays
from experiments.memory.simulator import MemorySimulation, Simulator
from experiments.workloads.step import KINDS, Step
from tests.experiments.memory.steps import Row, machine, make_step, plan_of

A = 1000


def network(depth: int) -> Step:
    """Linear layers of equal activations: x(i) from x(i-1); backward g(i-1) from g(i), x(i-1), with weights
    ignored.
    """
    rows: list[Row] = [
        (f"linear{i}", "forward", 1.0, (f"x{i - 1}" if i else "in",), (f"x{i}",)) for i in range(depth)
    ]
    rows.append(("mse_loss", "forward", 1.0, (f"x{depth - 1}",), ("l",)))
    rows.append(("mse_loss_backward", "backward", 1.0, ("l", f"x{depth - 1}"), (f"g{depth - 1}",)))
    for i in reversed(range(1, depth)):
        rows.append((f"linear_backward{i}", "backward", 1.0, (f"g{i}", f"x{i - 1}"), (f"g{i - 1}",)))
    sizes = {"in": 1, "l": 1, **{f"{kind}{i}": A for kind in "xg" for i in range(depth)}}
    step = make_step(rows, sizes, persistent=("in",))
    for tensor, name in enumerate(step.tensors.name):
        if name[0] == "g":
            step.tensors.kind[tensor] = KINDS.index("temporary")
    return step


def carried_out(step: Step, policy: Layrub, capacity: int) -> MemorySimulation:
    on = machine(capacity, bandwidth=1e9)
    plan = plan_of(policy, step, on)
    changed = transformed(step, plan)
    bare = MemoryPlan(plan.moves)
    assert violations(bare, changed, on) == []
    return Simulator(changed, on).run(bare)


def test_each_gradient_lies_over_the_activation_that_dies_with_it() -> None:
    step = network(4)
    names = step.tensors.name
    assert {(names[new], names[old]) for new, old in overlays(step)} == {
        ("g3", "x3"),
        ("g2", "x2"),
        ("g1", "x1"),
        ("g0", "x0"),
    }


@pytest.mark.parametrize("depth", [4, 8, 16])
def test_with_gradients_over_activations_one_buffer_a_layer_is_enough(depth: int) -> None:
    step = network(depth)
    assert step.live_peak > depth * A
    seen = carried_out(step, Layrub(inter_layer=False), depth * A + 2)
    assert seen.peak_bytes == depth * A + 2


@pytest.mark.parametrize("depth", [6, 12, 48])
def test_at_most_three_activations_are_resident_whatever_the_depth(depth: int) -> None:
    seen = carried_out(network(depth), Layrub(), 3 * A + 2)
    assert seen.peak_bytes <= 3 * A + 2


def test_the_copy_back_is_asked_for_one_layer_ahead() -> None:
    step = network(5)
    plan = plan_of(Layrub(intra_layer=False), step, machine(4 * A, bandwidth=1e9))
    names = step.tensors.name
    back = {names[move.tensor]: step.ops.name[move.at] for move in plan.moves if isinstance(move, Prefetch)}
    assert back["x0"] == "linear_backward2"
    assert back["x1"] == "linear_backward3"
    assert back["x2"] == "linear_backward4"
