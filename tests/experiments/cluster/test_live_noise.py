"""The noise of gradients by planted ones, and what live jobs of any batch are worth, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle, product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from experiments.cluster.interface import Gang, Machine, Machines  # noqa: E402
from experiments.cluster.interface.measurements import Measurement  # noqa: E402
from experiments.cluster.live import (  # noqa: E402
    Calibration,
    MeasuredBatches,
    TrainingJobs,
    goodput_of,
    training_jobs,
)
from experiments.cluster.live.adaptive_batch import AdaptiveBatch  # noqa: E402
from experiments.cluster.live.noise import GradientNoise, estimate_noise  # noqa: E402
from experiments.cluster.planning.agents import Agent  # noqa: E402
from experiments.cluster.planning.performance.goodput import BatchLimits, GoodputSpeed  # noqa: E402
from tests.experiments.cluster.traces import jobs  # noqa: E402

pytestmark = pytest.mark.torch
NUMBERS = st.floats(-10, 10)


@settings(max_examples=25)
@given(st.integers(2, 4), st.tuples(NUMBERS, NUMBERS), st.tuples(NUMBERS, NUMBERS), st.floats(0.1, 10))
def test_estimates_are_right_in_the_mean_of_all_that_may_be_drawn(
    parts: int, true: tuple[float, float], off: tuple[float, float], scale: float
) -> None:
    """Each part is off by ``off`` along each axis, one way or the other with equal chances.

    A part's variance is the sum of their squares, and a part is ``scale / parts`` initial batches.
    """
    found = []
    for signs in product((-1.0, 1.0), repeat=2 * parts):
        gradients = np.array(true) + np.reshape(signs, (parts, 2)) * off
        mean_square = float((gradients**2).sum(1).mean())
        found.append(estimate_noise(parts, mean_square, float((gradients.mean(0) ** 2).sum()), scale))
    square, variance = np.mean(found, axis=0)
    assert square == pytest.approx(np.dot(true, true), abs=1e-9)
    assert variance == pytest.approx(np.dot(off, off) * scale / parts, abs=1e-9)


def test_larger_batches_weigh_more_and_what_is_later_as_well() -> None:
    """Fifty initial batches are half of the average: of 10 and then 20 it is (10 + 2 x 20) / 3."""
    noise = GradientNoise()
    noise.learn(10, 30, 50)
    assert (noise.square, noise.variance) == pytest.approx((10, 30))
    noise.learn(20, 0, 50)
    assert (noise.square, noise.variance) == pytest.approx((50 / 3, 10))
    noise.learn(np.nan, np.inf, 50)
    assert (noise.square, noise.variance) == pytest.approx((50 / 3, 10)), "a gradient that is none"


def test_a_step_of_two_batches_is_worth_four_thirds_where_noise_and_gradient_are_as_large() -> None:
    noise = GradientNoise()
    assert noise.gain(2) == 1, "nothing is known yet"
    noise.learn(5, 5, 1)
    assert noise.gain(2) == pytest.approx(4 / 3)
    assert noise.gain(1) == 1


class PlantedReplica:
    """A copy whose parts have the gradients (3, 4 + 1) and (3, 4 - 1) in turn."""

    rank, ranks, size, device = 0, 1, 2, "cpu"

    def __init__(self) -> None:
        self.task = SimpleNamespace(batch=4, draw=lambda count: (torch.zeros(count), torch.zeros(count)))
        self.planted = cycle((torch.tensor([3.0, 5.0]), torch.tensor([3.0, 3.0])))
        self.updates: list[tuple[list[float], float]] = []

    def differentiate(self, inputs: Any, targets: Any, batch: int) -> float:
        assert len(inputs) == len(targets) == batch
        return 1.0

    def gradients(self, row: Any) -> Any:
        return row.copy_(next(self.planted))

    def add_up(self, values: Any) -> Any:
        return values

    def update(self, gradients: Any, gain: float) -> None:
        self.updates.append((gradients.tolist(), gain))


def plant(work: float, *division: int) -> AdaptiveBatch:
    return AdaptiveBatch(PlantedReplica(), work, division)  # type: ignore[arg-type]


def test_two_parts_of_a_batch_tell_its_noise() -> None:
    """Squares of 34 and 18, of the mean 25: the gradient's is 2 x 25 - 26 = 24, a part's variance 2.

    The batch is two initial ones, so that 2 is the variance of an initial batch; a step is worth 26 / 25.
    """
    batch = plant(1.5, 4, 1)
    batch.train()
    assert (batch.noise.square, batch.noise.variance) == pytest.approx((24, 2))
    assert batch.done == pytest.approx(1.04)
    ((mean, gain),) = batch.replica.updates  # type: ignore[attr-defined]
    assert mean == [3, 4]
    assert gain == pytest.approx(1.04)
    batch.train()
    assert batch.done == 1.5, "no more than the work that there is"
    assert (batch.steps, batch.samples) == (2, 16)


def test_steps_of_one_part_are_paired() -> None:
    batch = plant(10, 4, 0)
    batch.train()
    assert batch.noise.weight == 0, "one gradient alone tells nothing"
    batch.train()
    assert (batch.noise.square, batch.noise.variance) == pytest.approx((24, 2))
    assert batch.done == 2
    batch.divide((2, 0))
    before = batch.noise.weight
    batch.train()
    assert batch.noise.weight == before, "steps of two batches are no pair"


def jobs_and_speed(
    seconds: float, noise: tuple[tuple[float, float, float], ...] = ((10, 1.0, 1.0),)
) -> tuple[TrainingJobs, GoodputSpeed]:
    """One ``cnn`` whose steps of 4, 32 and 128 samples take 10, 20 and 50 ms, all but 2 of them computing."""
    rows = ((4, 0.010, 0.002), (32, 0.020, 0.002), (128, 0.050, 0.002))
    trace = replace(jobs((0, 1, seconds)), model=("cnn",))
    made = training_jobs(trace, lambda model, gpus, share: 0.02 / share)
    batches = {"cnn": MeasuredBatches({1: rows, 2: rows}, noise)}
    calibration = Calibration({("cnn", 1): 0.02}, 3.0, 0.1, batches=batches)
    return made, goodput_of(made, calibration, Machines([Machine("here", 2, "core")]))


def test_a_calibration_says_what_any_batch_is_worth_in_each_part_of_the_work() -> None:
    """64 samples on one slot are twice 32: 18 + 20 ms. Worth 4/3 where noise and gradient are as large, and
    1.6 where the noise is thrice the gradient; on two slots the step takes 20 ms.
    """
    _, speed = jobs_and_speed(0.3, ((10, 1.0, 1.0), (20, 1.0, 3.0)))
    assert speed.work(0) == 15
    alone, both = Gang(0, (0,), batch=64), Gang(0, (0, 1), batch=64)
    first = speed.rate(0, alone, done=2.0)
    assert (first.speed, first.until) == pytest.approx((4 / 3 / 0.038, 10))
    assert speed.rate(0, alone, done=12.0).speed == pytest.approx(1.6 / 0.038)
    assert speed.rate(0, both, done=12.0).speed == pytest.approx(1.6 / 0.020)
    assert speed.rate(0, Gang(0, (0,))).speed == pytest.approx(1 / 0.020)
    assert speed.limits(0) == BatchLimits(initial=32, most=256, least_each=4, most_each=128)


def test_an_agent_that_measures_a_host_expects_of_it_what_is_there() -> None:
    """Steps of 2 ms and 0.5 ms a sample, 4 ms more for the exchange on two: 20 and 22 ms for 32 on one and
    36 on each of two, with a noise so large that only samples count.
    """
    agent = Agent(BatchLimits(32, 256, 4, 128))
    for gpus, each, sync in ((1, 32, 0.0), (1, 64, 0.0), (2, 16, 0.004), (2, 32, 0.004)):
        step = 0.002 + 0.0005 * each + sync
        agent.learn(Measurement(1, gpus, each, 0, step, sync, square=0.0, variance=1.0 + each))
    assert agent.model is not None
    found = agent.model.step(False, np.array([1.0, 2.0]), np.array([128.0, 64.0]), np.zeros(2))
    assert found == pytest.approx([0.066, 0.038], rel=0.1)
    assert agent.best_batch(False, 2) == pytest.approx(256, rel=0.02), "every sample counts"
    assert agent.goodputs(False, 2)[2] > agent.goodputs(False, 2)[1]
