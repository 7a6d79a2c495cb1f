"""Speculative decoding: what comes out of a pass by the paper's formula, and that nothing else changes."""

from __future__ import annotations

import math
from typing import Any

import pytest

from experiments.core import registry
from experiments.models.served import served_model
from experiments.serving.interface import violations
from experiments.serving.interface.paged import PagedPolicy
from experiments.serving.interface.speculation import Speculation
from experiments.serving.interface.step_load import Entry, StepLoad
from experiments.serving.simulator import figures
from experiments.serving.simulator.paged import simulate_paged
from experiments.serving.simulator.step_prices import ProfilePrice
from experiments.workloads.profiles.layer_times import AttentionTimes, Curve, LayerTimes, Steady
from tests.experiments.serving.traces import ToyPrice, answered, requests, serve_paged


def make(**knobs: Any) -> PagedPolicy:
    made = registry.create("serving", "speculative", {"block_size": 4, **knobs})
    assert isinstance(made, PagedPolicy)
    return made


@pytest.mark.parametrize(("acceptance", "drafts"), [(0.5, 3), (0.8, 5), (0.9, 1)])
def test_a_pass_gives_as_many_tokens_as_the_formula_says(acceptance: float, drafts: int) -> None:
    expected = (1 - acceptance ** (drafts + 1)) / (1 - acceptance)
    trace = requests(*[(0, 4, int(1000 * expected)) for _ in range(100)])
    policy = make(acceptance=acceptance, draft_tokens=drafts)
    plan = simulate_paged(trace, policy, 10**6, ToyPrice())
    assert plan.memory is not None and plan.memory.verifications == pytest.approx(10**5, rel=0.02)
    assert figures(plan, trace)["tokens_per_verification"] == pytest.approx(expected, rel=0.01)
    assert violations(plan, trace, 4 * 10**6) == []


def test_drafts_that_are_always_right_cost_a_pass_for_all_of_them() -> None:
    """A prompt of 4 for 14 ms; then 3 drafts at half of 11 ms and a pass of 4 tokens: 30.5 ms for 4."""
    plan = serve_paged(requests((0, 4, 9)), "speculative", acceptance=1.0, draft_tokens=3, draft_cost=0.5)
    assert answered(plan) == [pytest.approx(14 + 2 * 30.5)]


def test_verified_tokens_are_no_part_of_a_prompt() -> None:
    """Of a prompt of 4 and two passes over a token and three drafts, while one of 6 comes in parts of 2."""
    alone = serve_paged(requests((0, 4, 9)), "speculative", acceptance=1.0, draft_tokens=3)
    assert alone.memory is not None
    assert [(row.prefill, row.decode) for row in alone.memory.passes] == [(4, 0), (0, 4), (0, 4)]
    knobs = {"acceptance": 1.0, "draft_tokens": 3, "token_budget": 6}
    both = serve_paged(requests((0, 4, 9), (0, 6, 1)), "speculative", **knobs)
    assert both.memory is not None
    assert [(row.prefill, row.decode) for row in both.memory.passes] == [(6, 0), (2, 4), (2, 4)]


def test_drafts_that_are_never_right_give_the_tokens_of_plain_decoding() -> None:
    plan = serve_paged(requests((0, 4, 4)), "speculative", acceptance=0.0, draft_tokens=2, draft_cost=0.0)
    assert answered(plan) == [14 + 3 * 13]
    assert plan.served[0].computed == 4 + 4 - 1


def test_nothing_is_drafted_before_an_answer_has_begun() -> None:
    """Four tokens of a prompt for 14 ms, the fifth for 11, then three drafts and a token for 14."""
    knobs = {"acceptance": 1.0, "draft_tokens": 3, "draft_cost": 0.0, "token_budget": 4}
    plan = serve_paged(requests((0, 5, 5)), "speculative", **knobs)
    assert round(1e3 * plan.served[0].first_token, 6) == 25
    assert answered(plan) == [39]


def test_memory_that_lacks_blocks_for_drafts_still_decodes() -> None:
    """Four blocks of four hold 13 tokens and the last: there is no room for eight drafts behind them."""
    plan = serve_paged(requests((0, 12, 4)), "speculative", blocks=4, acceptance=0.9, draft_tokens=8)
    assert not math.isnan(plan.served[0].answered)


def test_the_number_of_drafts_is_the_best_by_theorem_3_8() -> None:
    """The paper's figure 3: alpha 0.8 at c 0.05 has its optimum at 8, at c 0.5 at 1."""
    spec = Speculation(0.8, 0.05)
    best = max(range(1, 40), key=spec.improvement)
    assert make(acceptance=0.8, draft_cost=0.05, draft_tokens=0).drafts == best  # type: ignore[attr-defined]
    assert spec.improvement(best) > max(spec.improvement(best - 1), spec.improvement(best + 1)) > 2
    assert make(acceptance=0.3, draft_cost=0.5, draft_tokens=0).drafts == 1  # type: ignore[attr-defined]


def test_the_head_is_paid_for_every_draft_that_is_verified_and_the_bookkeeping_for_every_sequence() -> None:
    """Of two sequences with four drafts each: ten tokens' heads of 1 us, twice 100 us."""
    each, nothing = Curve((1.0, 64.0), (1e-6, 64e-6)), Curve((1.0, 64.0), (0.0, 0.0))
    besides = Curve((1.0, 64.0), (1e-4, 64e-4))
    still = AttentionTimes({(0, 0): Steady((0.0,), (Curve((0.0,), (0.0,)),))}, is_apart=True)
    times = LayerTimes("drafts", 1, {"any": nothing}, {"lm_head": each, "bookkeeping": besides}, still)
    price = ProfilePrice(times, served_model("llama31-8b"))
    entries = [Entry(0, 5, 7), Entry(1, 5, 9)]
    assert price.head(StepLoad.of(entries, {0, 1})) == pytest.approx(210e-6)
    assert price.head(StepLoad.of(entries)) == pytest.approx(202e-6)
