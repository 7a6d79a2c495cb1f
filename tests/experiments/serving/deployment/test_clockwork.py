"""Placements that follow the windows of a trace, and the controller that orders passes and copies."""

from __future__ import annotations

import math

import numpy as np
import pytest

from experiments.serving.policies.clockwork.controller import HOPELESS
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


def test_the_controller_copies_what_is_asked_for_and_misses_who_asks_first() -> None:
    """1 s of copying into the only place: of nine requests a window, the first is given up."""
    deployment = on_devices(model("a", 0.1, slo=0.2), model("b", 0.1, slo=0.2), gigabytes=1)
    plan = serve(deployment, "clockwork", ALTERNATING, control="controller")
    assert met(plan, deployment, ALTERNATING) == pytest.approx(1 - 10 / 90)
    assert [stay.begin for stay in plan.residences] == pytest.approx(
        [10.0 * window + 0.5 for window in range(10)]
    )
    assert {answer.rejected for answer in plan.answers} == {"", HOPELESS}


def test_the_largest_batch_in_time_runs_of_the_model_whose_start_is_due_first() -> None:
    """At 2.15 s, when b's pass ends, nine requests wait: eight of a, due at 2.6, and one of b, due at 4.55.

    Eight of a would end at 2.95, four end at 2.55; a fifth could not be in time after them.
    """
    a, b = model("a", {1: 0.1, 2: 0.2, 4: 0.4, 8: 0.8}, slo=0.55), model("b", 0.15, slo=2.5)
    asked = ask((0.0, 0), (0.0, 1), *[(2.05, 0)] * 8, (2.05, 1))
    plan = serve(on_devices(a, b), "clockwork", asked, control="controller")
    assert [(one.model, len(one.requests), round(one.enter[0], 6)) for one in plan.passes] == [
        (1, 1, 2.0),
        (0, 4, 2.15),
        (1, 1, 2.55),
    ]
    assert sum(answer.rejected == HOPELESS for answer in plan.answers) == 5


def test_what_was_used_least_recently_makes_room() -> None:
    """Room for two of three: c takes the place of b, which ran last before a did."""
    deployment = on_devices(*(model(name, 0.1) for name in "abc"), gigabytes=2)
    asked = ask((0.0, 0), (0.0, 1), (5.0, 0), (6.0, 2), (8.0, 0), (9.0, 1))
    plan = serve(deployment, "clockwork", asked, control="controller")
    assert answered(plan) == pytest.approx([1.1, 2.1, 5.1, 7.1, 8.1, 10.1])
    gone = [(stay.model, stay.end) for stay in plan.residences if stay.end < plan.end]
    assert gone == [(1, 6.0), (2, 9.0)]


def test_a_model_whose_device_cannot_keep_up_gets_another() -> None:
    """A request of 0.4 s every 0.2 s is twice what a device can do."""
    deployment = on_devices(model("a", 0.4, slo=1.5), devices=2)
    asked = ask((0.0, 0), *[(1.4 + 0.2 * place, 0) for place in range(12)])
    plan = serve(deployment, "clockwork", asked, control="controller")
    assert {one.group.devices for one in plan.passes} == {(0,), (1,)}
    alone = serve(on_devices(model("a", 0.4, slo=1.5)), "clockwork", asked, control="controller")
    assert met(plan, deployment, asked) > met(alone, deployment, asked)


@pytest.mark.parametrize("control", ["windows", "controller"])
def test_a_model_larger_than_a_device_is_nowhere_and_refused_with_its_reason(control: str) -> None:
    deployment = on_devices(model("a", gigabytes=3), gigabytes=2)
    placed = policy("clockwork", control=control).place(deployment, ask((0.0, 0)))
    plan = serve(deployment, "clockwork", ask((0.0, 0)), control=control)
    assert placed.unplaced[0] == plan.answers[0].rejected
    assert "larger than a device's" in plan.answers[0].rejected


def test_many_more_models_than_fit_are_in_time_where_copies_are_short() -> None:
    """300 models of 10 MB, 10 ms each to copy, on two devices that hold 100 each: 60 requests a second."""
    by_batch = {1: 0.002, 2: 0.003, 4: 0.004, 8: 0.006}
    models = [model(str(place), by_batch, slo=0.1, gigabytes=0.01) for place in range(300)]
    rng = np.random.default_rng(0)
    asked = ask(
        *zip(
            np.cumsum(rng.exponential(1 / 60, 1200)).tolist(),
            rng.integers(0, 300, 1200).tolist(),
            strict=True,
        )
    )
    deployment = on_devices(*models, devices=2, gigabytes=1)
    assert met(serve(deployment, "clockwork", asked, control="controller"), deployment, asked) == 1
    fixed = serve(deployment, "selective_replication", asked, search="uniform")
    assert met(fixed, deployment, asked) < 0.7
