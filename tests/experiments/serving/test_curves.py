"""What a serving run draws: shares within wider objectives, what passes took, full memory, the truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.core import registry
from experiments.serving.interface.paged import PagedPolicy
from experiments.serving.interface.step_load import StepLoad
from experiments.serving.simulator import LatencyObjective, curves, figures
from experiments.serving.simulator.paged import simulate_paged
from experiments.workloads.requests import Measured
from tests.experiments.serving.traces import ToyPrice, policies_of, requests, serve, serve_paged

TRACE = requests(*[(13 * row, 5 + 7 * row % 60, 1 + 5 * row % 17) for row in range(60)])


@pytest.mark.parametrize("scale", [0.3, 0.7, 1.0, 1.6, 4.0])
def test_the_share_within_a_wider_objective_is_that_of_a_run_which_was_asked_for_it(scale: float) -> None:
    """No way of batching looks at objectives, so the same run is judged by others."""
    asked = {"ttft": 0.3, "tpot": 0.02, "normalized": 0.05}
    plan = serve_paged(TRACE, "vllm_v1", blocks=60, max_batch=6)
    curve = curves(plan, TRACE, LatencyObjective(**asked))["slo_attainment_by_scale"]
    place = np.searchsorted(curve.x, scale * (1 + 1e-12), side="right")
    ours = curve.y[place - 1] if place else 0.0
    wider = LatencyObjective(**{name: scale * limit for name, limit in asked.items()})
    assert ours == pytest.approx(figures(plan, TRACE, wider)["slo_attainment"])
    assert 0.0 < curve.y[0] <= curve.y[-1] == 1.0


def test_without_an_objective_there_is_no_such_curve() -> None:
    assert "slo_attainment_by_scale" not in curves(serve(TRACE, "orca"), TRACE)


def test_objectives_of_the_trace_count_too_and_a_request_without_one_always_keeps_it() -> None:
    """At zero load: a prompt of 6 takes 16 ms."""
    trace = requests((0, 6, 1), (1000, 6, 1))
    told = replace(trace, slo=np.array([0.004, np.nan]))
    curve = curves(serve(told, "orca"), told)["slo_attainment_by_scale"]
    assert curve.x == pytest.approx([0.0, 4.0]) and curve.y == pytest.approx([0.5, 1.0])


def test_a_rejected_request_keeps_no_objective_however_wide() -> None:
    """The second one needs more than all memory of 40 tokens."""
    trace = requests((0, 6, 1), (1000, 600, 1), (2000, 6, 1))
    curve = curves(serve_paged(trace, "vllm_v1", blocks=10), trace, LatencyObjective(ttft=0.016))
    assert curve["slo_attainment_by_scale"].y == pytest.approx([1 / 3, 2 / 3])


class Grid(ToyPrice):
    """Measured up to eight tokens of a step."""

    def steps_beyond(self, load: StepLoad, steps: int = 1) -> int:
        return steps if load.tokens > 8 else 0


@pytest.mark.parametrize("name", policies_of(PagedPolicy))
def test_what_a_pass_takes_is_told_by_its_tokens_and_apart_what_was_extrapolated(name: str) -> None:
    made = registry.create("serving", name, {"block_size": 4, "max_batch": 4})
    assert isinstance(made, PagedPolicy)
    settled = made.settle(Grid(), TRACE.prompt.tolist())
    plan = simulate_paged(TRACE, settled, 10**4, Grid())
    found = curves(plan, TRACE)
    assert max(found["pass_time"].x) <= 8 < min(found["pass_time.beyond"].x)
    assert sum(row.beyond for row in plan.iterations) == plan.extrapolated
    if name != "speculative":  # whose steps take the small model's passes besides
        for curve in (found["pass_time"], found["pass_time.beyond"]):
            assert curve.y == pytest.approx([0.010 + 0.001 * tokens for tokens in curve.x])


def test_memory_is_told_with_all_of_it_and_when_a_request_had_to_leave() -> None:
    trace = requests((0, 8, 20), (0, 8, 20), (0, 8, 20))
    plan = serve_paged(trace, "vllm_paged", blocks=12, watermark=0.0)
    found = curves(plan, trace)
    left = sorted(since for served in plan.served for since, _ in served.preempted)
    assert left and found["kv_blocks.preemptions"].x == left
    assert found["kv_blocks.capacity"].y == [12, 12]
    assert all(0 < used <= 12 for used in found["kv_blocks.preemptions"].y)


def test_every_gap_between_two_tokens_is_in_their_distribution() -> None:
    """Of A 14, 12 and 11 ms, of C 12 (``test_figures_of_three_requests``)."""
    trace = requests((0, 4, 4), (0, 2, 1), (5, 3, 2))
    curve = curves(serve(trace, "orca", max_batch=2), trace)["tbt_distribution"]
    assert curve.x == pytest.approx([0.011, 0.012, 0.012, 0.014])


def test_what_a_real_server_took_stands_next_to_what_was_simulated() -> None:
    trace = requests((0, 6, 3), (100, 6, 1))
    told = replace(trace, measured=Measured(np.array([0.02, 0.13]), np.array([0.06, 0.13])))
    found = curves(serve(told, "orca"), told)
    assert found["ttft_distribution.measured"].x == pytest.approx([0.02, 0.03])
    assert found["latency_distribution.measured"].x == pytest.approx([0.03, 0.06])
    assert found["tpot_distribution.measured"].x == pytest.approx([0.02]), "one token has no later one"
    assert not any(name.endswith(".measured") for name in curves(serve(trace, "orca"), trace))
