"""How fast jobs train by Pollux' measurements, and the rules of its simulator, on what can be added up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.interpolate import LinearNDInterpolator

from experiments.cluster.interface import Gang, Machines
from experiments.cluster.planning.performance import GoodputSpeed, performance_of, timed_by
from experiments.cluster.planning.performance.goodput import BatchLimits, gain, split
from experiments.cluster.planning.performance.goodput.step_times import MeasuredSteps
from experiments.cluster.simulator import simulate
from experiments.cluster.simulator.releases import engine_of
from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.readers.job_profiles import open_profiles
from experiments.workloads.jobs import JobTrace
from experiments.workloads.profiles.training_runs import StepTimes, TrainingRun, TrainingRuns, Validation
from tests.experiments.cluster.traces import jobs

FOUR = Machines.of_sizes([4, 4])


def curve(epochs: int, noise: float) -> Validation:
    """Epochs of 90 units of progress."""
    ones = np.ones(epochs)
    return Validation(90 * np.cumsum(ones), 90 * np.cumsum(ones), np.cumsum(ones), ones, noise * ones)


def times(*rows: tuple[float, float, float]) -> StepTimes:
    return StepTimes(*np.array(rows).T)


def run(epochs: int = 1, noise: float = 1.0) -> TrainingRun:
    """A step takes a second for 8 samples on a device; gradients a quarter on one node, a second on two."""
    placed = {
        (1,): times((8, 1.0, 0.0), (16, 2.0, 0.0)),
        (2,): times((8, 1.25, 0.25), (16, 2.25, 0.25)),
        (1, 1): times((8, 2.0, 1.0), (16, 3.0, 1.0)),
        (1, 2): times((8, 2.5, 1.5), (16, 3.5, 1.5)),
        (2, 1): times((8, 99.0, 1.5)),
    }
    validated = {batch: curve(epochs, noise) for batch in (8, 16, 32)}
    return TrainingRun(placed, {(2, 4): times((8, 3.0, 2.0), (16, 4.0, 2.0))}, validated)


def trace_of(*rows: tuple[float, int, float], batch: float = 8, **runs: TrainingRun) -> JobTrace:
    trace = jobs(*rows)
    return replace(
        trace,
        model=("m",) * len(rows),
        service=np.full(len(rows), np.nan),
        traits={"batch": np.full(len(rows), batch)},
        profiles=TrainingRuns("made up", {"m": runs.get("m", run())}),
    )


def model_of(trace: JobTrace) -> GoodputSpeed:
    found = performance_of(trace, FOUR)
    assert isinstance(found, GoodputSpeed)
    return found


def test_doubling_a_batch_whose_gradient_is_half_noise_is_worth_a_third_more() -> None:
    one = np.ones(1)
    assert gain(one, one, 2.0)[0] == pytest.approx(4 / 3)
    assert gain(0 * one, one, 2.0)[0] == 2.0
    assert gain(0 * one, 0 * one, 2.0)[0] == 1.0


def test_a_batch_is_divided_with_as_few_accumulations_as_memory_allows() -> None:
    limits = BatchLimits(initial=8, most=64, least_each=4, most_each=16)
    assert split(32, 2, limits) == (16, 0)
    assert split(33, 2, limits) == (9, 1)
    assert split(8, 1, limits) == (8, 0)
    assert split(10, 1, limits) == (5, 1)  # alone beyond the initial batch
    assert split(64, 3, limits) == (10, 1)  # 3 x 2 x 11 would be more than 64


def test_a_measured_placement_is_interpolated_between_its_batches() -> None:
    rate = model_of(trace_of((0, 2, 0), batch=24)).rate(0, Gang(0, (0, 1)))
    assert rate.speed == pytest.approx((2 / (1 / 3 + 1)) / 1.75)
    assert rate.until == 90
    assert rate.busy == pytest.approx(1.5 / 1.75)


def test_the_ring_of_a_placement_begins_anywhere() -> None:
    """The rotation that comes first is (1, 2); the row for (2, 1), which no file has, is not looked at."""
    model = model_of(trace_of((0, 3, 0), batch=24))
    assert model.rate(0, Gang(0, (0, 1, 4))) == model.rate(0, Gang(0, (0, 4, 5)))
    assert model.application(0).steps.time((2, 1), 8)[0] == 2.5


def test_what_was_not_measured_lies_between_or_takes_the_nearest() -> None:
    steps = model_of(trace_of((0, 4, 0))).application(0).steps
    assert steps.time((2, 2), 8) == (3.0, 2.0)
    assert steps.time((4,), 8) == (1.25, 0.25)
    assert steps.time((1,), 4) == (1.0, 0.0)


def test_durations_follow_from_measurements_where_the_trace_has_none() -> None:
    trace = trace_of((0, 1, 0), (0, 2, 0), m=run(epochs=2))
    told = timed_by(trace, model_of(trace))
    assert told.service[0] == 180
    assert told.service[1] == 180 * 1.25  # 4 samples on a device take as long as the 8 that were measured


def test_speed_changes_at_the_end_of_each_epoch() -> None:
    noisy = replace(curve(2, 1.0), variance=np.array([0.0, 1e9]))
    runs = replace(run(epochs=2), validated={8: noisy, 16: noisy, 32: noisy})
    trace = trace_of((0, 2, 0), batch=16, m=runs)
    (execution,) = simulate(trace, FOUR, registry.create("cluster", "fifo", {}), model_of(trace)).executions
    assert execution.end == pytest.approx(90 * 1.25 + 90 * 1.25 / 2)


def test_a_model_that_was_not_measured_is_named_with_the_job() -> None:
    with pytest.raises(BadInput, match=r"no measurements of 'other'") as error:
        performance_of(replace(trace_of((0, 1, 0)), model=("other",)), FOUR)
    assert "job 0" in str(error.value)


class TestTheRelease:
    """Ticks of 60 s, and 30 s until a job makes progress."""

    def plan_of(self, trace: JobTrace):  # type: ignore[no-untyped-def]
        policy = registry.create("cluster", "tiresias", {"rules": "pollux"})
        return engine_of("pollux")(trace, FOUR, policy, performance_of(trace, FOUR))

    def test_a_job_waits_for_its_tick_and_for_its_start(self) -> None:
        """Submitted at 53, seen at 60, restarting until 90, 90 s of work: done at 180, 127 s after."""
        (execution,) = self.plan_of(trace_of((53, 1, 0))).executions
        assert (execution.start, execution.restarting, execution.end) == (60, 30, 180)

    def test_epochs_end_at_whole_seconds(self) -> None:
        """90 steps of 1.25 s are 112.5 s, rounded to the even 112."""
        (execution,) = self.plan_of(trace_of((0, 2, 0))).executions
        assert execution.end == 60 + 30 + 112

    def test_devices_of_a_job_that_ends_are_free_at_the_next_tick(self) -> None:
        plan = self.plan_of(trace_of((0, 8, 0), (0, 8, 0), m=run()))
        first, second = sorted(plan.executions, key=lambda one: one.start)
        assert second.start == 60 * -(-first.end // 60)

    def test_the_makespan_is_counted_from_zero(self) -> None:
        assert self.plan_of(trace_of((53, 1, 0))).figures == {"makespan": 180}

    def test_without_measurements_the_rules_say_what_they_ask_for(self) -> None:
        trace = jobs((0, 1, 10))
        policy = registry.create("cluster", "tiresias", {"rules": "pollux"})
        with pytest.raises(BadInput, match="folder of measurements"):
            engine_of("pollux")(trace, FOUR, policy, performance_of(trace, FOUR))


def test_what_the_release_says_of_single_applications_holds_under_its_rules_alone(shared_data: Path) -> None:
    runs = open_profiles(shared_data / "cluster/pollux/traces")
    trace = replace(trace_of((0, 1, 0)), model=("yolov3",), profiles=runs)
    model = model_of(trace)
    assert model.limits(0) == BatchLimits(8, 512, 4, 16)
    assert model.limited({"yolov3": {"most_each": 8}}).limits(0).most_each == 8
    assert model.limits(0).most_each == 16


def test_interpolation_is_that_of_scipy(shared_data: Path) -> None:
    """Weights are worked out here and handed to it: the same numbers as without that."""
    run_of = open_profiles(shared_data / "cluster/pollux/traces").applications["imagenet"]
    steps = MeasuredSteps(run_of)
    points, values = steps._points
    expected = LinearNDInterpolator(points, values)
    for gpus in range(5, 60, 4):
        for each in (20, 50, 111, 200):
            nodes = -(-gpus // 4)
            found = steps.time((*[4] * (nodes - 1), gpus - 4 * (nodes - 1)), each)
            if nodes > 4:
                assert found == pytest.approx(tuple(expected([nodes, gpus, each])[0]), rel=1e-9)
