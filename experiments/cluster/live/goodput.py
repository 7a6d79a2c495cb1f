"""What a calibration at several batches says of the jobs' speeds, as Pollux' measurements say it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from experiments.cluster.interface import Machines
from experiments.cluster.live.calibration import Calibration, MeasuredBatches
from experiments.cluster.live.training_jobs import BATCHES, MOST, TrainingJobs
from experiments.cluster.planning.performance.goodput import GoodputSpeed, gain
from experiments.workloads.profiles.training_runs import StepTimes, TrainingRun, TrainingRuns, Validation

#: Estimates so near the end of the work, as a part of it, say nothing of what is left.
NEAR = 1e-6


def goodput_of(jobs: TrainingJobs, calibration: Calibration, machines: Machines) -> GoodputSpeed:
    """Return the speeds of jobs whose batch is chosen: each is an application of its own."""
    runs = {
        name: _training_run(model, steps, calibration.batches[model])
        for name, model, steps in zip(jobs.trace.job, jobs.models, jobs.steps, strict=True)
    }
    trace = replace(jobs.trace, model=jobs.trace.job, traits={})
    return GoodputSpeed(trace, machines, TrainingRuns("this host", runs))


def _training_run(model: str, work: float, measured: MeasuredBatches) -> TrainingRun:
    placed: dict[tuple[int, ...], StepTimes] = {
        (size,): StepTimes(*np.array(rows, np.float64).T) for size, rows in measured.steps.items()
    }
    initial = BATCHES[model]
    most = MOST * initial
    return TrainingRun(
        placed, {}, {batch: _validation(work, measured, batch / initial) for batch in (initial, most)}
    )


def _validation(work: float, measured: MeasuredBatches, scale: float) -> Validation:
    """The work in parts with one noise each; beyond the last estimate that one holds."""
    before = [row for row in measured.noise if row[0] < work * (1 - NEAR)]
    last = measured.noise[min(len(before), len(measured.noise) - 1)]
    done, square, variance = np.array([*before, (work, *last[1:])], np.float64).T
    steps = np.cumsum(np.diff(done, prepend=0.0) / gain(square, variance, scale))
    return Validation(done, steps, np.full(len(done), np.nan), square, variance)
