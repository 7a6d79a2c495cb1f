"""What is foretold of a live run: the middle one of several simulations, by engines that are made up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.serving.experiment.prediction import predict
from experiments.serving.interface import ServingPlan
from experiments.serving.interface.paged import PagedPolicy
from experiments.serving.interface.step_load import StepLoad
from experiments.serving.simulator.paged import simulate_paged
from tests.experiments.serving.traces import requests


class Constant:
    """A host on which each step takes as long."""

    def __init__(self, step: float) -> None:
        self.step = step

    def seconds(self, load: StepLoad, steps: int = 1) -> Any:
        return np.full(steps, self.step)

    def steps_beyond(self, load: StepLoad, steps: int = 1) -> int:
        return 0

    def wake_seconds(self, idle: float) -> float:
        return 0.0


class MadeUp:
    """One request with a prompt of 4 tokens and an answer of 3: three steps."""

    trace = requests((0, 4, 3))

    def __init__(self) -> None:
        self.seeds: list[int] = []

    def simulate(self, trace: Any, price: Any, seed: int, pace: Any = None) -> ServingPlan:
        self.seeds.append(seed)
        policy = registry.create("serving", "vllm_v1", {})
        assert isinstance(policy, PagedPolicy)
        return simulate_paged(trace, policy, 10, price, pace=pace)


def foretell(*steps: float) -> tuple[Any, Sequence[int]]:
    engine = MadeUp()
    return predict(engine, [(Constant(step), None) for step in steps], 7), engine.seeds  # type: ignore[arg-type, list-item]


def test_each_figure_is_the_middle_one_and_its_range_is_told() -> None:
    """A host that was held up in one calibration of five moves the range and not the middle."""
    found, seeds = foretell(2.0, 1.0, 300.0, 3.0, 4.0)
    assert found.middle["latency_mean"] == pytest.approx(9.0)
    assert [found.low["latency_mean"], found.high["latency_mean"]] == pytest.approx([3.0, 900.0])
    assert found.middle["ttft_mean"] == pytest.approx(3.0)
    assert found.middle["iterations"] == 3
    assert seeds == [7, 8, 9, 10, 11], "drafts are drawn anew"


def test_a_run_of_more_than_half_an_hour_is_refused() -> None:
    with pytest.raises(BadInput, match="would take"):
        foretell(601.0)
    assert foretell(600.0)[0].middle["latency_mean"] == pytest.approx(1800.0)
