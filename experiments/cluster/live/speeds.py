"""``measured``: how fast this host's training jobs run, as a calibration found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.cluster.interface import Gang, Rate
from experiments.cluster.live.calibration import Calibration
from experiments.cluster.live.training_jobs import TrainingJobs
from experiments.core.errors import BadInput

#: What a slot is not, where jobs keep to shares of it.
PACED = (
    "a job that uses part of a slot waits between its steps, for what would be input elsewhere",
    "caches that cores have in common are not divided",
    "memory is neither capped nor moved: of what a policy leaves on the host only its loss of speed is real",
    "what a start computes beyond the share is waited for after the first step",
)


class MeasuredSpeed:
    """Work in steps. A job that shares a slot has an equal part of it, or the share that it is held to."""

    name = "measured"
    unit = "steps"

    def __init__(self, jobs: TrainingJobs, calibration: Calibration, *, paced: bool = False) -> None:
        self.jobs, self.calibration, self.paced = jobs, calibration, paced

    def work(self, job: int) -> float:
        return float(self.jobs.steps[job])

    def rate(self, job: int, gang: Gang, neighbors: Sequence[Gang] = (), done: float = 0.0) -> Rate:
        model = self.jobs.models[job]
        if (model, gang.size) not in self.calibration.step_seconds:
            what = f"{model} was not timed on {gang.size} slots"
            raise BadInput(what, f"job {self.jobs.trace.job[job]}", "a size that a job of its model asks for")
        crowding = self._crowding(model, neighbors)
        if not self.paced:
            alone = self.calibration.step_seconds[model, gang.size]
            return Rate(1 / alone / crowding / (1 + len(neighbors)))
        part = min(self.jobs.uses[job], gang.share)
        seconds = self.calibration.paced_seconds(model, gang.size, part / crowding)
        computing = self.calibration.computing_seconds(model, gang.size) * crowding
        return Rate(1 / seconds, busy=min(1.0, computing / seconds / gang.share))

    def _crowding(self, model: str, neighbors: Sequence[Gang]) -> float:
        """How many times as long a step is computed next to ``neighbors``: as next to the worst of them."""
        known = self.calibration.crowding
        pairs = ((model, self.jobs.models[other.job]) for other in neighbors)
        return max((known.get(pair, 1.0) for pair in pairs), default=1.0)

    def largest(self, job: int) -> int:
        model = self.jobs.models[job]
        return max(size for name, size in self.calibration.step_seconds if name == model)

    def describe(self) -> Mapping[str, Any]:
        told = self.calibration.describe()
        return {**told, "assumed": list(PACED)} if self.paced else told
