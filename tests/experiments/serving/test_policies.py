"""Each policy on three requests whose schedule can be worked out on paper (10 ms and 1 ms per token)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from experiments.core import registry
from tests.experiments.serving.traces import LinearCost, answered, engine, requests, serve

#: A asks 4 tokens and gets 4, B asks 2 and gets 1, C comes at 5 ms, asks 3 and gets 2.
TRACE = requests((0, 4, 4), (0, 2, 1), (5, 3, 2))


class TestOrca:
    def test_requests_join_and_leave_at_every_iteration(self) -> None:
        """Iterations end at 16 {A, B}, 30 {A, C}, 42 {A, C}, 53 {A}."""
        plan = serve(TRACE, "orca", max_batch=2)
        assert answered(plan) == [53, 16, 42]
        assert [round(s.first_token * 1e3) for s in plan.served] == [16, 16, 30]
        assert [(i.requests, i.tokens) for i in plan.iterations] == [(2, 6), (2, 4), (2, 2), (1, 1)]

    def test_slots_are_reserved_for_the_longest_answer_and_nobody_overtakes(self) -> None:
        """Three want 40 slots of 100, the fourth 10: it fits, but must not pass the third."""
        trace = requests((0, 30, 10), (0, 30, 10), (0, 30, 10), (0, 5, 5))
        plan = serve(trace, "orca", engine(kv_slots=100, max_output=10))
        admitted = [s.admitted for s in plan.served]
        assert admitted[:2] == [0, 0]
        assert admitted[2] == admitted[3] == plan.served[0].answered
        assert max(i.kv_reserved for i in plan.iterations) == 80

    def test_fewer_slots_by_knob(self) -> None:
        plan = serve(requests((0, 4, 2), (0, 4, 2)), "orca", slots=14, max_output=10)
        assert plan.served[1].admitted == plan.served[0].answered

    def test_what_can_never_fit_is_rejected_and_does_not_block(self) -> None:
        plan = serve(requests((0, 95, 2), (0, 5, 2)), "orca", engine(kv_slots=100, max_output=10))
        assert [s.rejected for s in plan.served] == [True, False]
        assert answered(plan)[1] == 15 + 11

    def test_three_stages_take_three_batches(self) -> None:
        """Stages of 10 ms: each request gets a token every 30 ms, a batch leaves the pipeline every 10 ms."""
        stages = engine(cost=LinearCost(0.010, 0.0), stages=3)
        plan = serve(requests((0, 1, 5), (0, 1, 5), (0, 1, 5)), "orca", stages, max_batch=1)
        assert {round(gap * 1e3, 6) for gap in plan.gaps} == {30}
        ends = sorted(i.end for i in plan.iterations)
        assert {round((later - earlier) * 1e3, 6) for earlier, later in pairwise(ends)} == {10}


class TestStaticBatching:
    def test_all_wait_for_the_longest_answer(self) -> None:
        """Prompts padded to 4: 18 ms. Three steps of two slots: 12 ms each. Then C alone: 13 and 11 ms."""
        plan = serve(TRACE, "static-batching", max_batch=2)
        assert answered(plan) == [54, 54, 78]
        assert round(plan.served[2].first_token * 1e3) == 67

    def test_early_return_answers_at_the_own_end(self) -> None:
        assert answered(serve(TRACE, "static-batching", max_batch=2, early_return=True)) == [54, 18, 78]

    def test_what_is_longer_than_the_shortest_prompt_is_computed_token_by_token(self) -> None:
        """Two tokens of A and of B: 14 ms, B's answer. A's other two, then three answered: 12 ms each."""
        plan = serve(TRACE, "static-batching", max_batch=2, prompts="shortest")
        assert answered(plan) == [74, 74, 98]
        assert [round(s.first_token * 1e3) for s in plan.served] == [38, 14, 87]
        assert [(i.tokens, i.steps) for i in plan.iterations] == [(4, 1), (2, 5), (3, 1), (1, 1)]
        early = serve(TRACE, "static-batching", max_batch=2, prompts="shortest", early_return=True)
        assert answered(early) == [74, 14, 98]

    def test_equal_prompts_are_computed_alike_either_way(self) -> None:
        alike = requests((0, 7, 4), (0, 7, 1), (5, 7, 2))
        plans = [serve(alike, "static-batching", max_batch=2, prompts=way) for way in ("padded", "shortest")]
        assert plans[0] == plans[1]

    def test_a_full_batch_is_waited_for(self) -> None:
        plan = serve(requests((0, 1, 1), (50, 1, 1)), "static-batching", max_batch=2)
        assert answered(plan) == [62, 62]

    def test_micro_batches_fill_and_drain_the_pipeline(self) -> None:
        """Two stages, two micro-batches of one: (2 + 2 - 1) stages' time for each pass."""
        stages = engine(cost=LinearCost(0.010, 0.0), stages=2)
        plan = serve(requests((0, 1, 3), (0, 1, 3)), "static-batching", stages, max_batch=2, micro_batch=1)
        assert answered(plan) == [90, 90]

    def test_padded_reservations_stay_within_memory(self) -> None:
        """Each of two would reserve 60 + 10 padded slots; 100 hold one."""
        trace = requests((0, 60, 2), (0, 5, 2))
        plan = serve(trace, "static-batching", engine(kv_slots=100, max_output=10), max_batch=2)
        assert [s.slots for s in plan.served] == [70, 15]
        assert plan.served[1].admitted == plan.served[0].answered


class TestDynamicBatching:
    def test_dispatches_when_the_oldest_has_waited(self) -> None:
        """25 ms a batch: the first two go at 20 and end at 45; the third came at 30 and goes at 50."""
        fixed = engine(cost=LinearCost(0.025, 0.0))
        trace = requests((0, 1, 1), (5, 1, 1), (30, 1, 1))
        plan = serve(trace, "dynamic-batching", fixed, max_batch=4, timeout=0.020)
        assert answered(plan) == [45, 45, 75]

    @pytest.mark.parametrize(("timeout", "expected"), [(0.0, [11, 22]), (0.005, [14, 14])])
    def test_no_timeout_no_wait(self, timeout: float, expected: list[float]) -> None:
        trace = requests((0, 1, 1), (2, 1, 1))
        assert answered(serve(trace, "dynamic-batching", max_batch=2, timeout=timeout)) == expected


def test_policies_of_one_model_and_of_several_are_offered_on_what_they_serve() -> None:
    """By what the summaries of a trace of requests and of a scenario tell."""
    several, one = {"models": 3}, {"requests": 9}
    for name in registry.family_policies("serving"):
        found = registry.policy_class("serving", name)
        if "requests" not in found.workloads["simulated"]:
            continue
        assert bool(found.lacks(several)) != bool(found.lacks(one)), name
