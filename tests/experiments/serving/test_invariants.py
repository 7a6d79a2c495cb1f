"""What holds for every registered serving policy on any requests, and Orca's order."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core.policy import HiddenColumn
from experiments.serving.interface import (
    Batch,
    Scheduler,
    ServingPlan,
    ServingPolicy,
    ServingView,
    Wait,
    violations,
)
from experiments.serving.interface.paged import PagedPolicy
from experiments.serving.simulator import BatchEngine, figures, simulate
from experiments.workloads.requests import RequestTrace
from tests.experiments.serving.traces import (
    engine,
    policies_of,
    policy,
    requests,
    serve,
    serve_paged,
)

POLICIES = policies_of(ServingPolicy)
rows = st.lists(
    st.tuples(st.integers(0, 300), st.integers(1, 40), st.integers(1, 12)), min_size=1, max_size=25
).map(sorted)
every_policy = pytest.mark.parametrize("name", POLICIES)


@every_policy
@settings(max_examples=40)
@given(rows=rows, slots=st.integers(20, 200), stages=st.integers(1, 3), batch=st.integers(1, 6))
def test_no_request_is_lost_and_slots_never_exceed_the_slots(
    name: str, rows: list[tuple[int, int, int]], slots: int, stages: int, batch: int
) -> None:
    trace, on = requests(*rows), engine(kv_slots=slots, max_output=12, stages=stages)
    plan = simulate(trace, on, policy(name, max_batch=batch))
    assert violations(plan, trace, slots) == []
    for served, prompt in zip(plan.served, trace.prompt.tolist(), strict=True):
        assert served.rejected == (prompt + 12 > slots)
        assert served.rejected != (not math.isnan(served.answered))
    assert max((row.kv_reserved for row in plan.iterations), default=0) <= slots


class Watched:
    """Orca's scheduler, with the iterations that every request has started so far held against
    its elders'.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.started: dict[int, int] = {}

    def next_batch(self, view: ServingView) -> Batch | Wait:
        decision = self.scheduler.next_batch(view)
        if isinstance(decision, Batch):
            for request in decision.requests:
                self.started[request] = self.started.get(request, 0) + 1
            self.check(view, decision)
        return decision

    def check(self, view: ServingView, decision: Batch) -> None:
        present = [
            r for r in sorted({*view.running, *view.waiting, *decision.requests}) if not view.finished[r]
        ]
        counts = [self.started.get(request, 0) for request in present]
        assert counts == sorted(counts, reverse=True), f"a later arrival is ahead: {present} {counts}"


@settings(max_examples=60)
@given(rows=rows, slots=st.integers(60, 300), stages=st.integers(1, 3), batch=st.integers(1, 6))
def test_orca_never_runs_a_later_arrival_more_often_than_an_earlier_one(
    rows: list[tuple[int, int, int]], slots: int, stages: int, batch: int
) -> None:
    on = engine(kv_slots=slots, max_output=12, stages=stages)
    simulation = BatchEngine(requests(*rows), on, policy("orca", max_batch=batch))
    simulation.scheduler = Watched(simulation.scheduler)
    simulation.run()


class OnePassAtATime:
    """Forbids the shortcut of several passes without asking."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler

    def next_batch(self, view: ServingView) -> Batch | Wait:
        decision = self.scheduler.next_batch(view)
        return replace(decision, repeat=False) if isinstance(decision, Batch) else decision


@settings(max_examples=40)
@given(rows=rows, batch=st.integers(1, 6))
def test_passes_without_asking_are_the_passes_with_asking(
    rows: list[tuple[int, int, int]], batch: int
) -> None:
    trace = requests(*rows)
    simulation = BatchEngine(trace, engine(kv_slots=200), policy("orca", max_batch=batch))
    simulation.scheduler = OnePassAtATime(simulation.scheduler)
    slow = simulation.run()
    fast = serve(trace, "orca", engine(kv_slots=200), max_batch=batch)
    assert fast.passes == slow.passes == len(slow.iterations)
    assert times(fast) == pytest.approx(times(slow), abs=1e-9, nan_ok=True)


def times(plan: ServingPlan) -> list[float]:
    return [time for s in plan.served for time in (s.admitted, s.first_token, s.answered)]


@every_policy
@pytest.mark.parametrize("output", [1, 5])
def test_alone_a_request_takes_its_own_time(name: str, output: int) -> None:
    plan = serve(requests((7, 6, output)), name)
    assert plan.served[0].answered == pytest.approx(0.007 + 0.016 + 0.011 * (output - 1))


@pytest.mark.parametrize("name", [*POLICIES, *policies_of(PagedPolicy)])
@settings(max_examples=40)
@given(rows=rows, data=st.data())
def test_no_decision_looks_at_answers_that_are_not_there_yet(
    name: str, rows: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    """Until the first request ends, other lengths of answers change nothing."""
    trace = requests(*rows)
    longer = replace(trace, output=trace.output + np.array([data.draw(st.integers(0, 5)) for _ in rows]))
    first, second = (_serve_few_at_once(one, name) for one in (trace, longer))
    until = min(served.last_token for served in first.served if not math.isnan(served.last_token))
    admitted = [[one.admitted for one in plan.served if one.admitted < until] for plan in (first, second)]
    assert admitted[0] == admitted[1]


def _serve_few_at_once(trace: RequestTrace, name: str) -> ServingPlan:
    """Four, from slots or blocks that are sometimes too few."""
    if name in POLICIES:
        return simulate(trace, engine(kv_slots=200, max_output=20), policy(name, max_batch=4))
    return serve_paged(trace, name, blocks=40, max_batch=4)


def test_output_lengths_are_hidden_from_orca() -> None:
    view = ServingView.of(requests((0, 1, 1)), policy("orca").sees)
    with pytest.raises(HiddenColumn, match="output is hidden"):
        _ = view.output


class TestViolations:
    """The checker sees what is wrong: a plan is falsified in one place each."""

    trace = requests((0, 4, 4), (0, 2, 1))

    def found(self, **change: object) -> str:
        plan = serve(self.trace, "orca")
        served = (replace(plan.served[0], **change), plan.served[1])  # type: ignore[arg-type]
        return "; ".join(violations(replace(plan, served=served), self.trace, 300))

    def test_a_good_plan_has_none(self) -> None:
        assert self.found() == ""

    def test_a_token_too_few(self) -> None:
        assert "request 0 is answered after 6 tokens instead of 7" in self.found(computed=6)

    def test_an_answer_before_the_last_token(self) -> None:
        assert "request 0 goes back in time" in self.found(answered=0.001)

    def test_more_slots_than_there_are(self) -> None:
        assert "302 KV slots are reserved at 0 s, the engine has 300" in self.found(slots=200)

    def test_a_lost_request(self) -> None:
        plan = serve(self.trace, "orca")
        lost = replace(plan, served=plan.served[:1])
        assert violations(lost, self.trace, 300) == ["1 outcomes are reported for 2 requests"]


def test_figures_of_three_requests() -> None:
    """A 53 ms for 4 tokens, B 16 for 1, C 37 for 2; gaps of A 14, 12, 11 and of C 12."""
    trace = requests((0, 4, 4), (0, 2, 1), (5, 3, 2))
    found = figures(serve(trace, "orca", max_batch=2), trace)
    assert found["latency_mean"] == pytest.approx((0.053 + 0.016 + 0.037) / 3)
    assert found["normalized_latency_p50"] == pytest.approx(0.016)
    assert found["ttft_p50"] == pytest.approx(0.016)
    assert found["tpot_mean"] == pytest.approx((0.037 / 3 + 0.012) / 2)
    assert found["throughput"] == pytest.approx(3 / 0.053)
    assert found["iterations"] == 4
