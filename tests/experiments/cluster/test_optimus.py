"""Optimus: curves that are fitted, devices that go where they save most, and jobs on few nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.cluster.interface import ClusterPlan, ClusterPolicy, Machines, violations
from experiments.cluster.planning.performance import performance_of
from experiments.cluster.policies.optimus.convergence import LossCurve, fit_losses
from experiments.cluster.policies.optimus.gains import share_out
from experiments.cluster.policies.optimus.placing import spread_evenly
from experiments.cluster.policies.optimus.speeds import SpeedCurve, fit_speeds
from experiments.cluster.simulator import simulate
from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.workloads.jobs import JobTrace
from experiments.workloads.profiles.throughput_table import ThroughputTables
from tests.experiments.cluster.profiles import goodput
from tests.experiments.cluster.traces import jobs

FOUR = Machines.of_sizes([4])


def optimus(**knobs: object) -> ClusterPolicy:
    made = registry.create("cluster", "optimus", knobs)
    assert isinstance(made, ClusterPolicy)
    return made


def carried_out(trace: JobTrace, machines: Machines = FOUR, **knobs: object) -> ClusterPlan:
    made, performance = optimus(**knobs), performance_of(trace, machines)
    plan = simulate(trace, machines, made, performance)
    assert violations(plan, trace, machines, performance, rigid=False) == []
    return plan


def test_a_device_goes_where_it_saves_most() -> None:
    """100 steps of 1, .6, .5 s and 60 of 1, .5, .45: gains of 40 and 30, then of 10 and 30."""
    levels = {0: [(1, 1.0), (2, 0.6), (3, 0.5)], 1: [(1, 1.0), (2, 0.5), (3, 0.45)]}
    left = {0: 100.0, 1: 60.0}
    assert share_out(levels, left, 3) == {0: 2, 1: 1}
    assert share_out(levels, left, 4) == {0: 2, 1: 2}
    assert share_out(levels, left, 1) == {0: 1, 1: 0}


def test_nobody_gets_what_saves_nothing() -> None:
    assert share_out({0: [(1, 1.0), (2, 1.0), (3, 0.2)]}, {0: 5.0}, 8) == {0: 1}


@settings(max_examples=50)
@given(
    b0=st.floats(1e-3, 1e-1), b1=st.floats(0.2, 2.0), b2=st.floats(0.0, 0.5), seed=st.integers(0, 2**32 - 1)
)
def test_a_planted_loss_curve_is_found(b0: float, b1: float, b2: float, seed: int) -> None:
    """Within 5 %, a loss six times too large among its points."""
    steps = np.arange(1, 400, 8, dtype=float)
    curve = LossCurve(b0, b1, b2)
    losses = curve.loss(steps)
    losses[int(np.random.default_rng(seed).integers(5, 40))] *= 6
    found = fit_losses(steps, losses)
    assert found is not None
    assert found.b0 == pytest.approx(b0, rel=0.05)
    assert found.b1 == pytest.approx(b1, rel=0.05)
    assert found.loss(1000.0) == pytest.approx(float(curve.loss(1000.0)), rel=0.05)


@settings(max_examples=50)
@given(planted=st.tuples(*[st.floats(0.01, 1.0)] * 5), synchronous=st.booleans())
def test_planted_speeds_are_found(planted: tuple[float, ...], synchronous: bool) -> None:
    """Coefficients within 5 %, and so the speed of counts that were not tried."""
    curve = SpeedCurve(8.0, planted if synchronous else planted[:4], synchronous)
    counts = [(1, 1), (2, 1), (1, 2), (2, 3), (4, 1), (3, 4), (6, 2), (2, 6)]
    found = fit_speeds([(w, p, curve.speed(w, p)) for w, p in counts], 8.0, synchronous=synchronous)
    assert found.coefficients == pytest.approx(curve.coefficients, rel=0.05)
    assert found.speed(12, 9) == pytest.approx(curve.speed(12, 9), rel=0.05)


def test_steps_left_are_those_until_an_epoch_saves_less_than_the_threshold() -> None:
    curve = LossCurve(0.1, 1.0, 0.0)
    until = curve.steps_until(0.01, 10)
    assert curve.loss(until) - curve.loss(until + 10) == pytest.approx(0.01)
    assert LossCurve(0.0, 1.0, 0.0).steps_until(0.01, 10) == 0


def test_few_points_tell_no_curve() -> None:
    assert fit_losses([1, 2, 3], [3, 2, 1]) is None


def test_a_job_is_spread_evenly_over_the_fewest_nodes() -> None:
    free = [[0], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14]]
    assert spread_evenly(4, free) == (4, 5, 6, 7)
    assert spread_evenly(6, free) == (4, 5, 6, 8, 9, 10)
    assert spread_evenly(13, free) == ()


def with_table(trace: JobTrace, *rows: tuple[tuple[int, float], ...]) -> JobTrace:
    count = len(trace)
    return replace(
        trace,
        model=tuple(f"m{job}" for job in range(count)),
        traits={"batch": np.full(count, 8.0), "iterations": np.array([100.0, 60.0])},
        profiles=ThroughputTables("t", {f"m{job}": {8: row} for job, row in enumerate(rows)}),
    )


def test_the_same_two_jobs_in_a_run() -> None:
    """With two devices each, the first does 100 steps in 60 s and the second 60 in 30."""
    rows = ((1, 1.0), (2, 1 / 0.6), (3, 2.0)), ((1, 1.0), (2, 2.0), (3, 1 / 0.45))
    plan = carried_out(with_table(jobs((0, 1, 0), (0, 1, 0)), *rows))
    assert [(one.gang.job, one.gang.size, round(one.end, 6)) for one in plan.executions] == [
        (1, 2, 30),
        (0, 2, 60),
    ]


def test_between_intervals_nothing_is_resized_and_a_newcomer_has_one_device() -> None:
    rows = ((1, 1.0), (2, 1.9), (3, 2.7)), ((1, 1.0), (2, 1.9))
    plan = carried_out(with_table(jobs((0, 1, 0), (10, 1, 0)), *rows), interval=20.0)
    began = [
        (one.gang.job, one.start, one.gang.size) for one in sorted(plan.executions, key=lambda one: one.start)
    ]
    assert began[:2] == [(0, 0, 3), (1, 10, 1)]
    assert began[2][1] == 20


@pytest.mark.parametrize("prediction", ["oracle", "noisy", "fitted"])
def test_each_way_to_predict_ends_all_jobs(prediction: str) -> None:
    trace = goodput.profiles_for(jobs(*[(7 * row, 1, 0) for row in range(8)]), FOUR)
    plan = carried_out(trace, prediction=prediction, interval=5.0)
    assert plan.unfinished == ()


def test_known_work_beats_work_known_badly_on_average() -> None:
    trace = goodput.profiles_for(jobs(*[(3 * row, 1, 0) for row in range(30)]), FOUR)

    def mean(**knobs: object) -> float:
        ends = [one.end for one in carried_out(trace, interval=5.0, **knobs).executions if one.completed]
        return float(np.mean(ends))

    assert mean() <= mean(prediction="noisy", sigma=3.0) * 1.02


def test_losses_that_nobody_tells_are_asked_for_in_words() -> None:
    trace = with_table(jobs((0, 1, 0), (0, 1, 0)), ((1, 1.0), (2, 1.5)), ((1, 1.0), (2, 1.5)))
    with pytest.raises(BadInput, match="no losses"):
        carried_out(trace, prediction="fitted")


def test_a_trace_without_speeds_is_refused_and_not_among_all() -> None:
    told = jobs((0, 1, 10)).told()
    assert "side file that tells how fast jobs run (goodput or table)" in optimus().lacks(told)
    assert optimus().lacks({**told, "speeds": "oracle"})
    assert not optimus().lacks({**told, "speeds": "goodput"})
