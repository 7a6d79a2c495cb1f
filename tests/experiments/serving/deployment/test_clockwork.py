"""Placements that follow the windows of a trace."""

from __future__ import annotations

import math

import pytest

from tests.experiments.serving.deployment.by_hand import answered, ask, met, model, on_devices, policy, serve

#: Ten windows of 10 s: in even ones only a is asked, in odd ones only b, once a second.
ALTERNATING = ask(
    *[(10.0 * window + second + 0.5, window % 2) for window in range(10) for second in range(9)]
)


def test_who_knows_the_window_serves_all_and_who_knows_the_one_before_none() -> None:
    """One device with memory for one of the models."""
    deployment = on_devices(model("a", 0.1, slo=0.2), model("b", 0.1, slo=0.2), gigabytes=1)
    ahead = serve(deployment, "clockwork", ALTERNATING, window=10.0)
    behind = serve(deployment, "clockwork", ALTERNATING, window=10.0, lag=1)
    assert met(ahead, deployment, ALTERNATING) == 1
    assert met(behind, deployment, ALTERNATING) == 0
    assert len(ahead.groupings) == 10 and not any(stay.copied for stay in ahead.residences)


def test_copies_take_their_time() -> None:
    """1 GB at 1 GB/s: the request half a second into a window comes too early, the other eight do not."""
    deployment = on_devices(model("a", 0.1, slo=0.2), model("b", 0.1, slo=0.2), gigabytes=1)
    plan = serve(deployment, "clockwork", ALTERNATING, window=10.0, swap=True)
    assert met(plan, deployment, ALTERNATING) == pytest.approx(1 - 9 / 90)
    assert [stay.ready - stay.begin for stay in plan.residences if stay.copied] == pytest.approx([1.0] * 9)


def test_without_an_objective_requests_wait_for_the_copy() -> None:
    deployment = on_devices(model("a", 0.1), model("b", 0.1), gigabytes=1)
    plan = serve(deployment, "clockwork", ask((0.5, 0), (10.5, 1)), window=10.0, swap=True)
    assert answered(plan) == pytest.approx([0.6, 11.1])


def test_one_window_is_selective_replication() -> None:
    models = (model("a", 0.3, slo=0.7), model("b", 0.2, slo=0.5), model("c", 0.1, slo=math.inf))
    deployment = on_devices(*models, devices=2, gigabytes=2)
    asked = ask(*[(0.1 * place, place % 3) for place in range(30)])
    ours = serve(deployment, "clockwork", asked, window=100.0)
    theirs = serve(deployment, "selective_replication", asked)
    assert [answer.answered for answer in ours.answers] == pytest.approx(
        [answer.answered for answer in theirs.answers], nan_ok=True
    )
    assert policy("clockwork").sees_trace
