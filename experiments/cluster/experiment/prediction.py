"""What the simulator says of a live run beforehand, by nothing but a calibration of the host.

A schedule is not continuous in its times: where two jobs are nearly equal, a percent decides which one waits.
So the run is simulated several times, by calibrations that the host might have given as well, and what is
foretold is the mean.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from experiments.cluster import live
from experiments.cluster.interface import ClusterPolicy, Machines, Performance
from experiments.cluster.planning.performance import TableSpeed
from experiments.cluster.simulator import PartStartCosts, StartCosts, figures, simulate
from experiments.core.errors import BadInput
from experiments.core.prediction import Prediction
from experiments.workloads.profiles.throughput_table import ThroughputTables

#: Simulations of one run.
DRAWS = 16
#: A run in real time ends before its trial's time is up; longer traces are cut by a window or a limit.
MOST_SECONDS = 3600.0


def predict(
    jobs: live.TrainingJobs,
    machines: Machines,
    policy: ClusterPolicy,
    calibration: live.Calibration,
    seed: int,
    draws: int = DRAWS,
) -> Prediction:
    """Simulate ``jobs`` by ``calibration`` and by ``draws - 1`` more drawn from ``seed``: the means.

    ``BadInput`` where they would run for more than ``MOST_SECONDS``.
    """
    found = [_simulate(jobs, machines, policy, calibration, seed)]
    _refuse_long(found[0])
    rng = np.random.default_rng(seed)
    found += [_simulate(jobs, machines, policy, calibration.draw(rng), seed) for _ in range(draws - 1)]
    return Prediction.over(found, statistics.fmean)


def _simulate(
    jobs: live.TrainingJobs,
    machines: Machines,
    policy: ClusterPolicy,
    calibration: live.Calibration,
    seed: int,
) -> dict[str, float]:
    speed = speed_model(jobs, machines, policy, calibration)
    crowded = partial(PartStartCosts, crowding=calibration.crowded_start)
    costs = crowded if policy.shares_devices else StartCosts
    plan = simulate(jobs.trace, machines, with_costs(policy, calibration), speed, seed, costs=costs)
    return figures(plan, jobs.trace, machines)


def speed_model(
    jobs: live.TrainingJobs, machines: Machines, policy: ClusterPolicy, calibration: live.Calibration
) -> Performance:
    """What a calibration says of the jobs' speeds: as a table where the policy asks for one."""
    if chooses_batches(policy):
        return live.goodput_of(jobs, calibration, machines)
    if TableSpeed.name not in policy.models:
        return live.MeasuredSpeed(jobs, calibration, paced=policy.caps_shares)
    timed = sorted(calibration.step_seconds.items())
    rows = {
        model: {0: tuple((size, 1 / took) for (name, size), took in timed if name == model)}
        for model in jobs.models
    }
    traits = {"iterations": np.array(jobs.steps, np.float64)}
    trace = replace(jobs.trace, model=jobs.models, traits=traits)
    return TableSpeed(trace, machines, ThroughputTables("this host", rows))


def chooses_batches(policy: ClusterPolicy) -> bool:
    """Whether jobs measure themselves for ``policy``, and train at the batch that it gives them."""
    return "gradients" in policy.sees


def with_costs(policy: ClusterPolicy, calibration: live.Calibration) -> ClusterPolicy:
    """The policy with what starts and checkpoints take here; the next job waits for both.

    Whatever gets other devices goes through a checkpoint.
    """
    again = calibration.start + calibration.save
    return replace(
        policy, start_cost=calibration.start, restart_cost=again, resize_cost=None, migration_cost=None
    )


def _refuse_long(expected: Mapping[str, float]) -> None:
    seconds = expected.get("makespan", 0.0)
    if seconds > MOST_SECONDS:
        what = f"these jobs would train for {seconds:,.0f} s on this host, in real time"
        raise BadInput(
            what, "workload.options", f"a limit or a window of jobs that end within {MOST_SECONDS:g} s"
        )
