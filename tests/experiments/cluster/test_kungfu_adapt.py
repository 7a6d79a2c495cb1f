"""Jobs that resize themselves as the noise of their gradients tells them to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.cluster.interface import ClusterPlan, ClusterPolicy, Gang, Machines, Pool, violations
from experiments.cluster.interface.measurements import Measurement
from experiments.cluster.planning.performance import performance_of
from experiments.cluster.policies.kungfu_adapt.adaptation import (
    DOUBLE,
    HALVE,
    KEEP,
    NoiseAdaptation,
    noise_scale,
)
from experiments.cluster.policies.kungfu_adapt.resizing import doubled, halved
from experiments.cluster.simulator import simulate
from experiments.core import registry
from experiments.core.errors import Infeasible
from experiments.workloads.jobs import JobTrace
from experiments.workloads.profiles.training_runs import TrainingRuns
from tests.experiments.cluster.profiles import goodput
from tests.experiments.cluster.traces import jobs

TWO_NODES = Machines.of_sizes([4, 4])


def adapt(*noises: float) -> list[str]:
    monitor = NoiseAdaptation(evaluations=3, above=2.0, below=0.5)
    return [monitor.evaluate(noise, 256) for noise in noises]


def test_three_noisy_evaluations_double_a_batch_of_256_once() -> None:
    assert adapt(600, 600, 600) == [KEEP, KEEP, DOUBLE]
    assert adapt(600, 400, 600) == [KEEP, KEEP, KEEP]
    assert adapt(100, 100, 100) == [KEEP, KEEP, HALVE]


def test_after_an_action_counting_begins_anew() -> None:
    assert adapt(600, 600, 600, 600, 600) == [KEEP, KEEP, DOUBLE, KEEP, KEEP]


def test_the_noise_scale_is_where_gradients_are_half_noise() -> None:
    measured = Measurement(1, 1, 16, 0, 1.0, 0.0, square=2.0, variance=3.0)
    assert noise_scale(measured, 16) == 24
    assert noise_scale(measured._replace(square=0.0), 16) == float("inf")


def test_a_job_grows_on_its_own_node_first_and_gives_up_what_is_scattered() -> None:
    pool = Pool(TWO_NODES)
    gang = Gang(0, (0, 1, 4))
    pool.take(gang)
    assert doubled(gang, pool) == (0, 1, 2, 3, 4, 5)
    assert halved(Gang(0, (0, 1, 4, 5, 6, 7)), TWO_NODES) == (4, 5, 6)
    pool.take(Gang(1, (2, 3, 5, 6)))
    assert doubled(gang, pool) is None


def carried_out(trace: JobTrace, **knobs: object) -> ClusterPlan:
    made = registry.create("cluster", "kungfu_adapt", {"interval": 2.0, **knobs})
    assert isinstance(made, ClusterPolicy)
    performance = performance_of(trace, TWO_NODES)
    plan = simulate(trace, TWO_NODES, made, performance)
    assert violations(plan, trace, TWO_NODES, performance, rigid=False) == []
    return plan


def of_noise(trace: JobTrace, noise: float) -> JobTrace:
    """Jobs of one application whose gradients are so noisy throughout, 16 samples a step."""
    runs = TrainingRuns("t", {"m": goodput.run(0.05, 0.05, (noise,) * 3, (40, 80, 160))})
    count = len(trace)
    return replace(trace, model=("m",) * count, traits={"batch": np.full(count, 16.0)}, profiles=runs)


def test_a_noisy_job_doubles_until_its_largest_batch() -> None:
    """Noise of 20 x 16 samples: 16, 32 and 64 are all less than half of it, and 64 is the most."""
    plan = carried_out(of_noise(jobs((0, 2, 0)), 20.0))
    assert [(one.gang.size, one.gang.batch) for one in plan.executions] == [(2, 0), (4, 32), (8, 64)]
    assert [one.restarting for one in plan.executions] == [0, 5, 5]


def test_a_quiet_job_stays_at_its_initial_batch() -> None:
    plan = carried_out(of_noise(jobs((0, 2, 0)), 0.1))
    assert [one.gang.size for one in plan.executions] == [2]


def test_what_somebody_waits_for_is_not_granted() -> None:
    """While the second job waits for 8 devices the first may not take more."""
    plan = carried_out(of_noise(jobs((0, 2, 0), (1, 8, 0)), 20.0))
    first = [one.gang.size for one in plan.executions if one.gang.job == 0]
    assert first == [2]


@pytest.mark.parametrize("host", ["fifo", "tiresias"])
def test_noisy_jobs_end_sooner_than_under_the_host_alone(host: str) -> None:
    trace = of_noise(jobs((0, 1, 0), (10, 1, 0), (40, 1, 0)), 20.0)
    alone = registry.create("cluster", host, {})
    assert isinstance(alone, ClusterPolicy)
    rigid = simulate(trace, TWO_NODES, alone, performance_of(trace, TWO_NODES))
    ends = [max(one.end for one in plan.executions) for plan in (carried_out(trace, host=host), rigid)]
    assert ends[0] < ends[1]


def test_a_job_that_asks_for_more_than_there_is_is_refused_or_dropped() -> None:
    """It begins with all that it asks for; the one after it does not wait for it."""
    trace = of_noise(jobs((0, 9, 0), (1, 1, 0)), 0.1)
    with pytest.raises(Infeasible, match="wants 9 GPUs, the cluster has 8: 1 are missing"):
        carried_out(trace)
    plan = carried_out(trace, oversized="drop")
    assert [one.gang.job for one in plan.executions if one.completed] == [1]
