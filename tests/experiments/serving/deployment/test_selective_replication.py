"""Whole models on single devices."""

from __future__ import annotations

import pytest

from tests.experiments.serving.deployment.by_hand import ask, met, model, on_devices, policy, serve

BURST = ask(*[(0.0, 0)] * 4, (0.0, 1))


@pytest.mark.parametrize("search", ["greedy", "beam"])
def test_the_model_that_is_asked_most_has_more_replicas(search: str) -> None:
    """Of five devices for one model each, four requests at once need four."""
    deployment = on_devices(model("a", 1, slo=1), model("b", 1, slo=1), devices=5, gigabytes=1)
    placed = policy("selective_replication", search=search).place(deployment, BURST)
    assert sorted(group.models for group in placed.groups) == [(0,), (0,), (0,), (0,), (1,)]
    assert met(serve(deployment, "selective_replication", BURST, search=search), deployment, BURST) == 1


def test_uniform_goes_round() -> None:
    deployment = on_devices(model("a"), model("b"), model("c"), devices=3, gigabytes=2)
    placed = policy("selective_replication", search="uniform").place(deployment, BURST)
    assert [group.models for group in placed.groups] == [(0, 1), (1, 2), (2, 0)]


def test_an_objective_below_one_pass_is_met_by_nobody() -> None:
    deployment = on_devices(model("a", 1, slo=0.99), model("b", 1, slo=0.5), devices=5)
    assert met(serve(deployment, "selective_replication", BURST), deployment, BURST) == 0


def test_a_model_larger_than_a_device_is_nowhere_and_says_why() -> None:
    deployment = on_devices(model("a", gigabytes=3), model("b"), devices=2, gigabytes=2)
    placed = policy("selective_replication").place(deployment, BURST)
    assert "larger than a group's devices" in placed.unplaced[0]
    assert met(serve(deployment, "selective_replication", BURST), deployment, BURST) == pytest.approx(0.2)
