"""Looped collective einsums: the gate, the loop step by step, and what it computes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.hardware import Link
from experiments.parallel.interface import Collective, ParallelPlan, violations
from experiments.parallel.policies.collective_einsum import CollectiveEinsum
from experiments.parallel.policies.collective_einsum.loops import (
    blocking_seconds,
    loop_pays,
    looped_seconds,
)
from experiments.parallel.simulator import simulate
from tests.experiments.parallel.builders import chain, cluster, estimate

BYTE_A_SECOND = Link("slow", 1.0, 0.0, True, "test")


def gathered_shard(rank: int, step: int, ranks: int) -> int:
    """All-gather, then einsum: the operand's shard that ``rank`` multiplies in ``step``; shards move to the
    rank below.
    """
    return (rank + step) % ranks


def added_slice(rank: int, step: int, ranks: int) -> int:
    """Einsum, then reduce-scatter: the result's slice to which ``rank`` adds in ``step``; accumulators move
    to the rank above, so that of slice d starts at rank d+1 and ends at rank d.
    """
    return (rank - 1 - step) % ranks


def carried_out_seconds(compute: float, permute: float, ranks: int) -> float:
    """What the loop takes step by step: ``ranks`` equal parts of computing, a permute overlapped with each
    but one.
    """
    part = compute / ranks
    return (ranks - 1) * max(part, permute) + part


def test_ten_of_computing_and_eight_of_gathering_on_four() -> None:
    """mu = 1: 10 + 4 = 14 is below 18; mu = 2: 16 + 8 = 24 is not."""
    assert blocking_seconds(10, 8) == 18
    assert (looped_seconds(10, 8, 4, 1), loop_pays(10, 8, 4, 1)) == (14, True)
    assert (looped_seconds(10, 8, 4, 2), loop_pays(10, 8, 4, 2)) == (24, False)
    assert not loop_pays(10, 0, 4, 1), "nothing to hide"


@given(st.integers(2, 6), st.integers(1, 3), st.integers(1, 4), st.integers(0, 1000))
@settings(max_examples=25)
def test_both_loops_compute_what_the_blocking_forms_do(
    ranks: int, rows: int, columns: int, seed: int
) -> None:
    """Integers, so equal to the last bit. X is divided by rows; the reduction by its contracted dimension."""
    rng = np.random.default_rng(seed)
    x, w = rng.integers(-9, 9, (ranks * rows, 5)), rng.integers(-9, 9, (5, columns))
    shards = np.split(x, ranks)
    for rank in range(ranks):
        gathered = np.zeros((ranks * rows, columns), np.int64)
        for step in range(ranks):
            shard = gathered_shard(rank, step, ranks)
            gathered[shard * rows : (shard + 1) * rows] = shards[shard] @ w
        assert np.array_equal(gathered, x @ w)

    a, b = rng.integers(-9, 9, (ranks * rows, ranks * 2)), rng.integers(-9, 9, (ranks * 2, columns))
    left, right = np.split(a, ranks, axis=1), np.split(b, ranks)
    accumulators = {(d + 1) % ranks: np.zeros((rows, columns), np.int64) for d in range(ranks)}
    for step in range(ranks):
        for rank in range(ranks):
            part = added_slice(rank, step, ranks)
            accumulators[rank] = (
                accumulators[rank] + (left[rank] @ right[rank])[part * rows : (part + 1) * rows]
            )
        if step < ranks - 1:
            accumulators = {(rank + 1) % ranks: held for rank, held in accumulators.items()}
    assert np.array_equal(np.concatenate([accumulators[d] for d in range(ranks)]), a @ b)


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("size", [1.0, 16.0])
def test_the_simulator_takes_the_loop_step_by_step(ranks: int, mu: float, size: float) -> None:
    """Two layers of F=8, B=16 on ``ranks`` devices at 1 byte/s; the second gathers ``size`` bytes, in
    permutes of a part.

    Backward it gathers and scatters, both overlapped with its two products. Its first layer reads nothing.
    """
    model = chain(2, 8.0, 16.0, parameter_bytes=4.0, output_bytes=size)
    hardware = cluster(1, ranks, link=BYTE_A_SECOND)
    asked = estimate(model, hardware)
    policy = CollectiveEinsum(gate="always", mu=mu, bidirectional=False)
    plan = policy.place(model, hardware, 1, asked)
    assert violations(plan, model, hardware) == []
    assert ParallelPlan.from_json(plan.to_json()) == plan
    permute = mu * size / ranks
    loops = carried_out_seconds(8 / ranks, permute, ranks) + carried_out_seconds(
        16 / ranks, 2 * permute, ranks
    )
    assert simulate(plan, asked).step_time == pytest.approx(24 / ranks + loops)
    blocking = CollectiveEinsum(gate="never").place(model, hardware, 1, asked)
    gather = (ranks - 1) / ranks * size
    assert simulate(blocking, asked).step_time == pytest.approx(48 / ranks + 3 * gather)


@given(st.floats(0.1, 100), st.floats(0.1, 100), st.integers(2, 32), st.floats(0.5, 2))
def test_the_gates_estimate_is_no_less_than_the_loop_takes(
    compute: float, collective: float, ranks: int, slowdown: float
) -> None:
    """p-1 permutes take mu T_m together, so where the gate says that looping pays, it does."""
    permute = slowdown * collective / (ranks - 1)
    taken = carried_out_seconds(compute, permute, ranks)
    if compute >= slowdown * collective:
        assert taken <= looped_seconds(compute, collective, ranks, slowdown) * (1 + 1e-9)
    if loop_pays(compute, collective, ranks, slowdown) and permute <= compute / ranks:
        assert taken == pytest.approx(compute)


def test_a_layer_loops_where_it_pays_and_otherwise_waits() -> None:
    """Four devices, F=40: T_c = 10 s. 4/3 x 8 bytes take T_m = 8 s: looped at mu = 1, not at mu = 2."""
    model = chain(2, 40.0, 80.0, parameter_bytes=4.0, output_bytes=8 * 4 / 3)
    hardware = cluster(1, 4, link=BYTE_A_SECOND)
    asked = estimate(model, hardware)

    def forward(policy: CollectiveEinsum) -> tuple[Collective, ...]:
        plan = policy.place(model, hardware, 1, asked)
        assert plan.shardings[0].forward == ()
        return plan.shardings[1].forward

    (looped,) = forward(CollectiveEinsum(mu=2.0, bidirectional=True, least_bytes=0))
    assert (looped.kind, looped.parts, looped.overlap) == ("permute", 4, True)
    (waits,) = forward(CollectiveEinsum(mu=2.0, bidirectional=False, least_bytes=0))
    assert (waits.kind, waits.parts, waits.overlap) == ("all_gather", 1, False)
    assert forward(CollectiveEinsum(least_bytes=100))[0].kind == "all_gather"
    assert forward(CollectiveEinsum(least_bytes=0, most_parts=3))[0].kind == "all_gather"


def test_a_loop_in_parts_needs_overlap() -> None:
    model, hardware = chain(2, parameter_bytes=4.0, output_bytes=4.0), cluster(1, 2)
    plan = CollectiveEinsum(gate="always").place(model, hardware, 1, estimate(model, hardware))
    text = plan.to_json()
    text["shardings"][1]["forward"][0]["overlap"] = False
    found = violations(ParallelPlan.from_json(text), model, hardware)
    assert len(found) == 1
    assert "is in 2 parts" in found[0]
