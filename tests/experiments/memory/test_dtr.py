"""Dynamic rematerialization: scores worked out by hand, and what must never be evicted."""

from __future__ import annotations

import math

import pytest

from experiments.core.errors import Infeasible
from experiments.memory.interface import Drop, Lineage, MemoryPlan, Recompute, violations
from experiments.memory.policies.dtr import HEURISTICS, Classes, Dtr, Full, Local
from experiments.memory.policies.dtr.online import Relations
from experiments.memory.simulator import Simulator
from tests.experiments.memory.steps import chain, machine, make_step, plan_of


def three():
    """t1, t2 and t3 in a row cost 1, 3 and 4 seconds."""
    rows = [
        ("one", "forward", 1.0, [], ["t1"]),
        ("two", "forward", 3.0, ["t1"], ["t2"]),
        ("three", "forward", 4.0, ["t2"], ["t3"]),
    ]
    step = make_step(rows, {"t1": 1, "t2": 2, "t3": 1})
    return Relations(step, Lineage(step))


def test_prices_with_and_without_an_evicted_neighbor():
    # With last accesses at 2, 4 and 6 and the clock at 10: bytes x staleness are 8, 12 and 4.
    stale = (8, 12, 4)
    local = Local(three())
    assert [local.price(t) / stale[t] for t in range(3)] == [0.125, 0.25, 1.0]
    for neighbors in (Full(three()), Classes(three())):
        neighbors.note_departure(1)
        assert [neighbors.price(t) / stale[t] for t in (0, 2)] == [0.5, 1.75]


def test_classes_join_when_one_leaves_between_two_and_shrink_when_one_returns():
    classes = Classes(three())
    classes.note_departure(0)
    classes.note_departure(2)
    assert classes.price(1) == 3 + 1 + 4
    classes.note_departure(1)
    classes.note_return(1)
    # The class is never split: what is left of it, 1 + 4, is counted once.
    assert classes.price(1) == 3 + (1 + 4)


def carried_out(step, capacity, **knobs):
    on = machine(capacity)
    plan = plan_of(Dtr(**knobs), step, on)
    assert violations(plan, step, on) == []
    return Simulator(step, on).run(plan)


@pytest.mark.parametrize("heuristic", sorted(HEURISTICS))
def test_a_long_chain_runs_in_a_few_square_roots_of_its_layers(heuristic):
    # 64 layers, 1 byte each. Theorem 3.1 is about the heuristics that know their neighborhood.
    done = carried_out(chain(64), 2 * math.isqrt(64) + 3, heuristic=heuristic, limit=20.0)
    assert done.peak_bytes <= 19
    if heuristic != "local":
        assert done.recompute_time <= 2 * 131


def test_more_memory_means_less_recomputation_and_enough_means_none():
    step = chain(32)
    assert plan_of(Dtr(), step, machine(step.live_peak)) == MemoryPlan()
    times = [carried_out(step, capacity, limit=10.0).recompute_time for capacity in (32, 24, 16, 12)]
    assert 0 < times[0] <= min(times[1:]) and max(times) == times[-1]


def test_recomputation_beyond_the_limit_is_infeasible_and_says_so():
    with pytest.raises(Infeasible, match="recomputation exceeds its limit"):
        plan_of(Dtr(limit=1.01), chain(32), machine(12))


def test_the_notes_tell_the_overhead_that_the_simulator_finds():
    step, on = chain(32), machine(16)
    plan = plan_of(Dtr(limit=10.0), step, on)
    assert plan.notes["overhead"] == pytest.approx(Simulator(step, on).run(plan).step_time / step.seconds)


def test_what_reads_a_parameter_that_is_updated_before_its_last_use_never_leaves():
    rows = [
        ("load", "forward", 1.0, [], ["x"]),
        ("scale", "forward", 1.0, ["x", "w"], ["a"]),
        ("relu", "forward", 1.0, ["a"], ["b"]),
        ("square", "forward", 1.0, ["b"], ["c"]),
        ("cube", "forward", 1.0, ["c"], ["d"]),
        ("loss", "forward", 1.0, ["d"], ["l"]),
        ("loss_backward", "backward", 1.0, ["l"], ["g"]),
        ("update", "optimizer", 1.0, ["g", "w"], ["w"]),
        ("square_backward", "backward", 1.0, ["g", "b"], ["g"]),
        ("relu_backward", "backward", 1.0, ["g", "a"], ["g"]),
    ]
    step = make_step(rows, {"w": 1, "x": 1, "a": 4, "b": 4, "c": 4, "d": 4, "l": 0, "g": 1}, persistent=["w"])
    a, b = step.tensors.name.index("a"), step.tensors.name.index("b")
    # At the cube w, a, b, c and d are 17 bytes; c and d are in use, a is needed after the update.
    plan = plan_of(Dtr(small=0.0), step, machine(16))
    assert plan.moves == (Drop(4, b), Recompute(8, (2,), (b,)))
    assert violations(plan, step, machine()) == [] and a not in [move.tensor for move in plan.moves[:1]]
    with pytest.raises(Infeasible, match="nothing can be evicted: 1 bytes"):
        plan_of(Dtr(small=0.0), step, machine(12))
