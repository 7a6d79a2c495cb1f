"""TeraPipe: the dynamic program against every slicing there is, its formula against the event simulator."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core.budget import ENDED_AT, Budget
from experiments.core.errors import BadInput
from experiments.hardware import Hardware
from experiments.parallel.interface import ParallelPlan, Slice, violations
from experiments.parallel.policies.terapipe import TeraPipe
from experiments.parallel.policies.terapipe.slicing import Latency, best_slicing, slicing_seconds
from experiments.parallel.simulator import simulate
from experiments.workloads.layers import LayerGraph
from tests.experiments.parallel.builders import chain, cluster, estimate


def example(steps: int) -> Latency:
    """t(l, c) = 1 + l (1 + c/4) + l^2/8."""
    tokens, context = np.indices((steps + 1, steps + 1))
    return (1 + tokens * (1 + context / 4) + tokens**2 / 8)[None]


@pytest.mark.parametrize(
    ("steps", "stages", "lengths", "seconds"),
    [
        (4, 1, [4], 7.0),
        (4, 4, [1, 1, 1, 1], 18.625),
        (8, 4, [2, 1, 1, 1, 1, 1, 1], 34.625),
    ],
)
def test_slices_get_shorter_as_the_context_grows(
    steps: int, stages: int, lengths: list[int], seconds: float
) -> None:
    latency = example(steps)
    groups = best_slicing(latency, 1, stages)
    assert groups == [(1, lengths)]
    assert slicing_seconds(latency, groups, stages) == seconds


def test_a_search_without_evaluations_takes_the_least_sum() -> None:
    latency = np.concatenate([example(4), 3 * example(4)])
    none, enough = Budget(1), Budget(10**6)
    assert best_slicing(latency, 3, 4, budget=none) == [(1, [4])] * 3 and none.ended_early
    assert best_slicing(latency, 3, 4, budget=enough) == [(1, [2, 1, 1])] * 3 and not enough.ended_early


def compositions(total: int) -> Iterator[list[int]]:
    for cuts in itertools.product((False, True), repeat=total - 1):
        borders = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), total]
        yield [end - begin for begin, end in itertools.pairwise(borders)]


@given(
    times=st.lists(st.integers(1, 30), min_size=72, max_size=72),
    stages=st.integers(1, 6),
    samples=st.integers(1, 2),
)
@settings(max_examples=40)
def test_no_slicing_is_better(times: list[int], stages: int, samples: int) -> None:
    """Any times at all: 5 steps, one or two samples together or apart."""
    latency = np.array(times, np.float64).reshape(2, 6, 6)
    groups = best_slicing(latency, samples, stages)
    every = [[(size, lengths) for lengths in compositions(5)] for size in (1, 2)]
    ways = [[one] for one in every[samples - 1]]
    ways += [[one, other] for one in every[0] for other in every[0] if samples == 2]
    assert slicing_seconds(latency, groups, stages) == min(
        slicing_seconds(latency, way, stages) for way in ways
    )


def causal(layers: int, sequence: int = 8, **figures: float) -> LayerGraph:
    """Half of each layer's FLOPs are attention: a weight takes 2 x 8 of its 32 a sample."""
    model = chain(layers, 8.0, 16.0, parameter_bytes=4.0, flops=32.0, **figures)  # type: ignore[arg-type]
    return replace(model, facts={"sequence": sequence})


def placed(policy: TeraPipe, model: LayerGraph, hardware: Hardware, batch: int) -> tuple[ParallelPlan, float]:
    asked = estimate(model, hardware)
    plan = policy.place(model, hardware, batch, asked)
    assert violations(plan, model, hardware) == []
    return plan, simulate(plan, asked).step_time


def test_without_overhead_every_token_is_a_slice_and_the_simulator_gives_the_papers_formula() -> None:
    """Token c takes 24 (1/2 1/8 + 1/2 (2c+1)/64): 1.6875 for the first to 4.3125 for the last, 24 in all."""
    plan, seconds = placed(TeraPipe(granularity=1, overhead=0.0), causal(4), cluster(1, 4), 1)
    assert plan.slices == tuple(Slice(1, c, 1) for c in range(8))
    assert seconds == pytest.approx(24 + 3 * 4.3125)


def test_what_a_slot_costs_makes_slices_longer() -> None:
    plan, seconds = placed(TeraPipe(granularity=1, overhead=2.0), causal(4), cluster(1, 4), 1)
    assert [part.tokens for part in plan.slices] == [3, 2, 2, 1]
    # 24 for the sequence and 4 for each slice; the third is the longest: 24 (1/2 2/8 + 1/2 (49 - 25)/64) + 4
    assert seconds == pytest.approx(24 + 4 * 4 + 3 * 11.5)
    assert plan.notes["predicted_step_time"] == pytest.approx(seconds)


def test_two_samples_are_sliced_together_where_slots_are_dear() -> None:
    """On one device nothing is gained by cutting, so all samples make one slice."""
    plan, seconds = placed(TeraPipe(granularity=4, overhead=5.0), causal(1), cluster(1, 1), 2)
    assert plan.slices == (Slice(2, 0, 8),)
    assert seconds == 2 * 24 + 2 * 5


def test_every_slice_keeps_its_part_until_its_backward_pass() -> None:
    model, hardware = causal(2, stash_bytes=80.0), cluster(1, 2)
    asked = estimate(model, hardware)
    plan = TeraPipe(granularity=2, overhead=0.0).place(model, hardware, 2, asked)
    found = simulate(plan, asked)
    states = 4 + 4 + 8  # one parameter in float32 with Adam
    assert [usage.peak for usage in found.memory] == [2 * 80 + states] * 2
    assert found.memory[0].live_micro_batches == len(plan.slices)


def test_slots_that_need_later_keys_are_a_violation() -> None:
    model, hardware = causal(1), cluster(1, 1)
    halves, _ = placed(TeraPipe(granularity=4, overhead=0.0), model, hardware, 1)
    assert halves.slices == (Slice(1, 0, 4), Slice(1, 4, 4))
    first, second, back, last = halves.workers[0].slots
    wrong = (second, first, last, back)
    swapped = replace(halves, workers=(replace(halves.workers[0], slots=wrong),))
    found = violations(swapped, model, hardware)
    assert len(found) == 2
    assert found[0].startswith("slot F1.0 comes before F0.0, whose keys and values it needs")
    missing = replace(halves, slices=(Slice(1, 0, 4), Slice(1, 5, 3)))
    assert "slice 1 has 3 tokens after 5, expected after 4" in violations(missing, model, hardware)


def test_a_plan_of_slices_survives_json() -> None:
    plan, _ = placed(TeraPipe(granularity=2, overhead=1.0), causal(2), cluster(1, 4), 4)
    assert ParallelPlan.from_json(plan.to_json()) == plan


def test_a_model_without_sequences_is_refused() -> None:
    with pytest.raises(BadInput, match="has no sequences to cut"):
        placed(TeraPipe(), chain(2), cluster(1, 2), 1)


def test_a_grid_that_does_not_fit_the_sequence_is_refused() -> None:
    with pytest.raises(BadInput, match=r"8 tokens do not divide into 3"):
        placed(TeraPipe(granularity=3), causal(2), cluster(1, 2), 1)


def test_a_plan_at_its_bound_says_so() -> None:
    model, hardware = causal(4), cluster(1, 2)
    plan, _ = placed(TeraPipe(granularity=1, evaluations=1), model, hardware, 4)
    assert "bound of 1 sums (knob evaluations)" in plan.notes[ENDED_AT]
    assert ENDED_AT not in placed(TeraPipe(granularity=1), model, hardware, 4)[0].notes
