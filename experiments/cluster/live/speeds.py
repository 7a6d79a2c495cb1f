"""``measured``: how fast this host's training jobs run, as a calibration found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.cluster.interface import Gang, Rate
from experiments.cluster.live.calibration import Calibration
from experiments.cluster.live.training_jobs import TrainingJobs
from experiments.core.errors import BadInput


class MeasuredSpeed:
    """Work in steps. A job that shares a slot has an equal part of it."""

    name = "measured"
    unit = "steps"

    def __init__(self, jobs: TrainingJobs, calibration: Calibration) -> None:
        self.jobs, self.calibration = jobs, calibration

    def work(self, job: int) -> float:
        return float(self.jobs.steps[job])

    def rate(self, job: int, gang: Gang, neighbors: Sequence[Gang] = (), done: float = 0.0) -> Rate:
        model = self.jobs.models[job]
        if (model, gang.size) not in self.calibration.step_seconds:
            what = f"{model} was not timed on {gang.size} slots"
            raise BadInput(what, f"job {self.jobs.trace.job[job]}", "a size that a job of its model asks for")
        return Rate(1 / (self.calibration.step_seconds[model, gang.size] * (1 + len(neighbors))))

    def largest(self, job: int) -> int:
        model = self.jobs.models[job]
        return max(size for name, size in self.calibration.step_seconds if name == model)

    def describe(self) -> Mapping[str, Any]:
        return self.calibration.describe()
