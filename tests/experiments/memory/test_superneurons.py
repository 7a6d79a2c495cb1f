"""SuperNeurons: segments by cost, and a cache that sends the least recently used away."""

from __future__ import annotations

import pytest

from experiments.memory.interface import Lineage, MemoryPlan, Offload, Prefetch, Recompute, violations
from experiments.memory.planning.rematerialize import Rematerializer
from experiments.memory.policies.superneurons import Superneurons, demands_of, segments
from experiments.memory.policies.superneurons.tensor_cache import TensorCache
from experiments.memory.simulator import Simulator
from tests.experiments.memory.steps import machine, make_step, plan_of

F, B = "forward", "backward"


def two_convolutions():
    """CONV -> ACT (4 bytes) -> POOL (1 byte) -> CONV."""
    rows = [
        ("conv_0", F, 4.0, ["x"], ["c0"]),
        ("relu_1", F, 1.0, ["c0"], ["act"]),
        ("pool_2", F, 1.0, ["act"], ["pool"]),
        ("conv_3", F, 4.0, ["pool"], ["c3"]),
        ("sum", F, 1.0, ["c3"], ["l"]),
        ("conv_3_backward", B, 4.0, ["l", "pool"], ["g"]),
        ("pool_2_backward", B, 1.0, ["g", "act", "pool"], ["g"]),
        ("relu_1_backward", B, 1.0, ["g", "c0"], ["g"]),
        ("conv_0_backward", B, 4.0, ["g", "x"], ["g"]),
    ]
    sizes = {"x": 1, "c0": 4, "act": 4, "pool": 1, "c3": 6, "l": 0, "g": 1}
    return make_step(rows, sizes, persistent=["x"])


@pytest.mark.parametrize(("l_peak", "forwards"), [(6, 2), (5, 2), (4.5, 3)])
def test_a_segment_larger_than_the_largest_layer_runs_again_for_each_reader(l_peak, forwards):
    # Sums 4 and 5. Speed-centric both layers run once more; memory-centric k (k + 1) / 2 = 3 for k = 2.
    step = two_convolutions()
    remake = Rematerializer(step)
    (segment,) = segments(step, remake)
    assert (segment.ops, segment.bytes) == ((1, 2), 5)
    moves = remake.moves_for(demands_of(segment, l_peak))
    assert sum(len(move.ops) for move in moves if isinstance(move, Recompute)) == forwards
    assert violations(MemoryPlan(moves), step, machine()) == []


def three_buffers():
    """a and b wait for the backward pass while c and d pass through."""
    rows = [
        ("one", F, 1.0, [], ["a"]),
        ("two", F, 1.0, [], ["b"]),
        ("three", F, 1.0, ["a"], ["c"]),
        ("four", F, 1.0, ["c"], ["d"]),
        ("five", B, 1.0, ["d", "b"], ["g"]),
        ("six", B, 1.0, ["g", "a"], []),
    ]
    return make_step(rows, {"a": 4, "b": 4, "c": 4, "d": 4, "g": 1})


def test_the_least_recently_used_leaves_and_comes_back_when_read():
    # At "four" a, b, c and d are 16 bytes. b was used before a was, so b leaves, and returns for "five".
    step = three_buffers()
    cache = TensorCache(step, Lineage(step), 13, (), {})
    assert cache.run() == (Offload(3, 1, 2), Prefetch(4, 1))


def test_what_is_asked_for_ahead_comes_when_there_is_room():
    step = three_buffers()
    early = TensorCache(step, Lineage(step), 13, (), {3: [1]}).run()
    assert early == (Offload(3, 1, 2), Prefetch(4, 1))  # no room while "four" runs
    assert TensorCache(step, Lineage(step), 16, (), {3: [1]}).run() == ()


@pytest.mark.parametrize("recompute", ["cost-aware", "speed-centric", "memory-centric", "never"])
def test_plans_fit_in_what_the_cache_counted(recompute):
    step = two_convolutions()
    for missing in range(1, 4):
        on = machine(step.live_peak - missing)
        plan = plan_of(Superneurons(recompute=recompute), step, on)
        assert violations(plan, step, on) == []
        assert Simulator(step, on).run(plan).peak_bytes <= on.capacity


def test_enough_memory_means_no_moves():
    step = two_convolutions()
    assert plan_of(Superneurons(), step, machine(step.live_peak)) == MemoryPlan()
