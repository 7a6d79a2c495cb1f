"""Training runs for jobs written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from experiments.cluster.interface import Machines
from experiments.workloads.jobs import JobTrace
from experiments.workloads.profiles.training_runs import StepTimes, TrainingRun, TrainingRuns, Validation

#: Samples on a device that are measured, and those of a step.
EACH, BATCHES = (4, 8, 16), (16, 32, 64)
PLACED = ((1,), (2,), (3,), (4,), (1, 1), (1, 2), (2, 2), (2, 3), (3, 3))


def times(placement: Sequence[int], compute: float, network: float) -> StepTimes:
    """Steps that grow with the batch; gradients cost more between nodes."""
    sync = 0.0 if sum(placement) == 1 else network * (1 + (len(placement) > 1)) * (1 + 0.05 * sum(placement))
    each = np.array(EACH, np.float64)
    return StepTimes(each, 0.05 + compute * each + sync, np.full(len(EACH), sync))


def run(compute: float, network: float, noise: Sequence[float], epochs: Sequence[float]) -> TrainingRun:
    """One application with ``noise`` over signal and progress at the end of each epoch."""
    marks = np.array(epochs, np.float64)
    ones = np.ones(len(marks))
    validated = {
        batch: Validation(
            marks,
            marks * (16 / batch + 0.5) / 1.5,
            marks / marks[-1],
            ones,
            np.array(noise, np.float64),
        )
        for batch in BATCHES
    }
    placed = {placement: times(placement, compute, network) for placement in PLACED}
    return TrainingRun(placed, {(3, 8): times((3, 3, 2), compute, network)}, validated)


RUNS = TrainingRuns(
    "made up",
    {
        "calm": run(0.02, 0.02, (0.5, 0.5, 0.5), (20, 40, 60)),
        "noisy": run(0.05, 0.3, (1.0, 8.0, 20.0), (10, 15, 40)),
    },
)


def profiles_for(trace: JobTrace, machines: Machines) -> JobTrace:
    """The trace with jobs of two applications in turn, of 32 samples a step."""
    return replace(
        trace,
        model=tuple("noisy" if int(job) % 2 else "calm" for job in trace.job),
        traits={**trace.traits, "batch": np.full(len(trace), 32.0)},
        profiles=RUNS,
    )
