"""First-touch placement: what was touched first is in DRAM for life, and nothing ever moves."""

from __future__ import annotations

import pytest

from experiments.core.errors import Infeasible
from experiments.memory.interface import InPlace, PlaceTensor, violations
from experiments.memory.interface.machine import CopyRate
from experiments.memory.policies.first_touch import FirstTouch
from experiments.memory.simulator import Simulator
from tests.experiments.memory.steps import MS, machine, make_step, plan_of

MB = 10**6


def with_remote(capacity: int):
    """Memory beyond DRAM that gives and takes 10 GB a second."""
    rate = CopyRate(10e9)
    return machine(capacity, remote_bytes=2**40, remote_write=rate, remote_read=rate)


def a_and_b():
    """``w`` is there from the start, ``a`` comes before ``b``, ``c`` takes the addresses of ``a``."""
    rows = [
        ("makes_a", "forward", 10 * MS, ["w"], ["a"]),
        ("makes_b", "forward", 10 * MS, ["a"], ["b"]),
        ("makes_c", "forward", 10 * MS, ["b"], ["c"]),
        ("uses_c", "backward", 10 * MS, ["c", "w"], []),
    ]
    return make_step(rows, dict.fromkeys("wabc", 400 * MB), persistent=["w"])


def test_only_what_was_touched_when_dram_was_full_is_used_beyond_it():
    # DRAM holds w and a; b is beyond: written in 40 ms, read in 40 ms. c is where a was.
    step, on = a_and_b(), with_remote(900 * MB)
    plan = plan_of(FirstTouch(), step, on)
    assert violations(plan, step, on) == []
    b = step.tensors.name.index("b")
    assert [(move.at, move.tensors) for move in plan.moves] == [(1, (b,)), (2, (b,))]
    done = Simulator(step, on).run(plan)
    assert done.step_time == pytest.approx(10 * MS + 40 * MS + 40 * MS + 10 * MS)
    assert done.peak_bytes == 800 * MB
    assert plan.notes["heap_bytes"] == pytest.approx(1200 * MB, rel=1e-5)


def test_what_persists_is_placed_beyond_where_it_finds_no_dram():
    step, on = a_and_b(), with_remote(300 * MB)
    plan = plan_of(FirstTouch(), step, on)
    assert violations(plan, step, on) == []
    assert isinstance(plan.moves[0], PlaceTensor)
    assert all(isinstance(move, InPlace) for move in plan.moves[1:])
    assert Simulator(step, on).run(plan).peak_bytes == 0


def test_what_fits_is_left_alone_and_a_node_without_other_memory_is_refused():
    assert plan_of(FirstTouch(), a_and_b(), with_remote(1200 * MB)).moves == ()
    with pytest.raises(Infeasible, match="memory that ops can use in place"):
        plan_of(FirstTouch(), a_and_b(), machine(900 * MB))
