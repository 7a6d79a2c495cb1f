"""Sublinear memory: where borders are kept, in what order a chain is reversed, and what cannot run again."""

from __future__ import annotations

import functools
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.memory.interface import Drop, MemoryPlan, Recompute, violations
from experiments.memory.planning.borders import budgets
from experiments.memory.planning.chain import chain_of
from experiments.memory.planning.rematerialize import Demand, Rematerializer
from experiments.memory.planning.reversal import (
    Turn,
    reverse_by_segments,
    reverse_optimally,
    reverse_recursively,
)
from experiments.memory.policies.checkpoint import Checkpoint
from experiments.memory.simulator import Simulator
from tests.experiments.memory.steps import chain, machine, make_step, plan_of


@functools.cache
def extra_steps(length: int, slots: int) -> int:
    """Griewank's t(l, c), term by term."""
    if length <= 1 or slots == 0:
        return length * (length - 1) // 2
    return min(j + extra_steps(length - j, slots - 1) + extra_steps(j, slots) for j in range(1, length))


@pytest.mark.parametrize(
    ("length", "slots", "steps"), [(4, 1, 4), (4, 2, 3), (6, 2, 7), (10, 2, 15), (10, 3, 14), (7, 0, 21)]
)
def test_extra_forward_steps_of_griewank(length, slots, steps):
    assert extra_steps(length, slots) == steps


def counted(reversal, units: int) -> tuple[int, int]:
    """Forward steps that the turns make before their own units, and most states stored at once."""
    stored, steps, most = {0, *reversal.kept}, 0, 0
    for turn in reversal.turns:
        start = max(state for state in stored if state <= turn.start)
        steps += turn.start - start
        stored = {state for state in stored if state < turn.stop} | set(turn.store)
        most = max(most, len(stored) - 1)
    assert sum(turn.stop - turn.start for turn in reversal.turns) == units
    return steps, most


@settings(max_examples=60)
@given(st.integers(1, 40), st.integers(0, 8))
def test_the_optimal_reversal_takes_as_many_steps_as_the_formula_says(units, slots):
    # The first forward pass makes the steps up to the last stored state; those are not extra.
    reversal = reverse_optimally(units, slots)
    steps, most = counted(reversal, units)
    first = max(reversal.kept, default=0)
    assert steps + first == extra_steps(units, slots)
    assert most <= slots


def test_a_recursive_reversal_of_eight_units_keeps_three_states_at_once():
    reversal = reverse_recursively(8, borders=1)
    assert reversal.kept == (4, 6, 7)
    assert counted(reversal, 8)[1] == 3
    assert reversal.turns[:4] == (Turn(7, 8), Turn(6, 7), Turn(5, 6, (5,)), Turn(4, 5))


def test_segments_are_turned_last_first():
    assert reverse_by_segments(5, [2, 4]).turns == (Turn(4, 5), Turn(2, 4), Turn(0, 2))


def peak_and_reruns(step, **knobs) -> tuple[int, float]:
    plan = plan_of(Checkpoint(**knobs), step, machine())
    assert violations(plan, step, machine()) == []
    done = Simulator(step, machine()).run(plan)
    return done.peak_bytes, done.recompute_time


def test_recursion_holds_a_logarithm_of_the_layers_and_runs_forward_log_times():
    # 64 layers: six halvings, so six borders, the layer at hand, its input and the gradient.
    peak, reruns = peak_and_reruns(chain(64), variant="recursive", keep_last=False)
    assert peak <= 6 + 3
    assert 64 < reruns <= 64 * 6
    assert peak < peak_and_reruns(chain(64))[0]


def test_more_stored_states_never_cost_more_forward_steps():
    found = [peak_and_reruns(chain(32), variant="optimal", slots=slots)[1] for slots in (2, 4, 8, 100)]
    assert found == sorted(found, reverse=True)
    assert found[-1] == 0


def test_the_optimal_variant_stores_no_more_states_than_needed():
    step = chain(32)
    assert plan_of(Checkpoint(variant="optimal"), step, machine(step.live_peak)) == MemoryPlan()
    plan = plan_of(Checkpoint(variant="optimal"), step, machine(12))
    assert Simulator(step, machine(12)).run(plan).peak_bytes <= 12


def test_a_search_takes_the_fastest_plan_that_fits():
    step = chain(49)
    roomy = Simulator(step, machine(40)).run(plan_of(Checkpoint(variant="search"), step, machine(40)))
    tight = Simulator(step, machine(16)).run(plan_of(Checkpoint(variant="search"), step, machine(16)))
    assert roomy.recompute_time <= tight.recompute_time


# --- what cannot run again ----------------------------------------------------------------------------------


def updated_early():
    """Layer 1 reads ``w``, which an update changes in the middle of the backward pass, before
    layer 0's turn.
    """
    rows = [
        ("load", "forward", 1.0, [], ["x"]),
        ("scale", "forward", 1.0, ["x", "w"], ["a"]),
        ("relu", "forward", 1.0, ["a"], ["b"]),
        ("square", "forward", 1.0, ["b"], ["c"]),
        ("loss", "forward", 1.0, ["c"], ["l"]),
        ("loss_backward", "backward", 1.0, ["l"], ["g"]),
        ("update", "optimizer", 1.0, ["g", "w"], ["w"]),
        ("square_backward", "backward", 1.0, ["g", "b"], ["g"]),
        ("relu_backward", "backward", 1.0, ["g", "a"], ["g"]),
    ]
    return make_step(rows, {"w": 1, "x": 4, "a": 4, "b": 4, "c": 4, "l": 0, "g": 1}, persistent=["w"])


def layers_in_place(count, in_place):
    """Layers of a byte each, on whose output a rectifier works in place or not at all."""
    rows, names = [], [f"x{i}" for i in range(count + 1)]
    for i, (before, after) in enumerate(itertools.pairwise(names)):
        rows.append((f"layer{i}", "forward", 1.0, [before], [after]))
        rows += [(f"relu{i}_", "forward", 1.0, [after], [after])] if in_place else []
    rows += [(f"grad{i}", "backward", 1.0, [names[i]], []) for i in reversed(range(count + 1))]
    return make_step(rows, dict.fromkeys(names, 1))


def test_budgets_count_the_border_itself_also_where_an_op_on_it_in_place_ends_the_segment():
    plain, rectified = (budgets(chain_of(layers_in_place(64, in_place))) for in_place in (False, True))
    assert rectified == pytest.approx(plain)
    assert rectified[0] > 5


def test_what_reads_a_parameter_updated_meanwhile_stays_and_the_rest_is_made_from_it():
    step = updated_early()
    a, b = step.tensors.name.index("a"), step.tensors.name.index("b")
    moves = Rematerializer(step).moves_for([Demand(7, (a, b))])
    assert moves == (Drop(4, b), Recompute(7, (2,), (b,)))
    assert violations(MemoryPlan(moves), step, machine()) == []


def test_a_tensor_overwritten_in_place_is_made_by_all_its_writers():
    rows = [
        ("load", "forward", 1.0, [], ["x"]),
        ("scale", "forward", 1.0, ["x"], ["a"]),
        ("relu_", "forward", 1.0, ["a"], ["a"]),
        ("loss", "forward", 1.0, ["a"], ["l"]),
        ("loss_backward", "backward", 1.0, ["l"], ["g"]),
        ("scale_backward", "backward", 1.0, ["g", "a", "x"], ["g"]),
    ]
    step = make_step(rows, {"x": 1, "a": 4, "l": 0, "g": 1})
    moves = Rematerializer(step).moves_for([Demand(5, (1,))])
    assert moves == (Drop(4, 1), Recompute(5, (1, 2), (1,)))


def test_a_reader_of_a_value_that_was_overwritten_since_cannot_run_again():
    # y was made from a before relu_ changed a, and a itself stays: y cannot be made from what a is now.
    rows = [
        ("scale", "forward", 1.0, [], ["a"]),
        ("copy", "forward", 1.0, ["a"], ["y"]),
        ("relu_", "forward", 1.0, ["a"], ["a"]),
        ("loss", "forward", 1.0, ["a", "y"], ["l"]),
        ("loss_backward", "backward", 1.0, ["l"], ["g"]),
        ("copy_backward", "backward", 1.0, ["g", "y", "a"], ["g"]),
    ]
    step = make_step(rows, {"a": 4, "y": 4, "l": 0, "g": 1})
    assert Rematerializer(step).moves_for([Demand(5, (1,))]) == ()
    # Where a leaves too, both are made again from the start.
    assert Rematerializer(step).moves_for([Demand(5, (0, 1))])[-1] == Recompute(5, (0, 1, 2), (0, 1))


def test_bert_with_shared_constants_that_the_trace_updates_still_gives_back_half_its_memory(shared_data):
    import gzip

    from experiments.core.options import WorkloadOptions
    from experiments.readers import g10

    data = gzip.decompress((shared_data / "memory" / "g10" / "BERT_Base_256.json.gz").read_bytes())
    step = g10.READER.read(data, "BERT_Base_256", WorkloadOptions()).value
    activations = step.live_peak - step.persistent_bytes
    peak, reruns = peak_and_reruns(step, variant="search")
    assert peak - step.persistent_bytes < activations / 4
    assert reruns < 0.1 * step.seconds
