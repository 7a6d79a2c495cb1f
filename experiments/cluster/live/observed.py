"""What a scheduler sees of jobs that really run: what their processes have measured of themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.cluster.interface import ClusterView, Gang
from experiments.cluster.interface.measurements import Measurable, Measurement
from experiments.cluster.live.stays import Stay


@dataclass(frozen=True)
class ObservedJobs:
    """Measurements of the running ``stays``; of their batches what ``submitted`` says."""

    submitted: Measurable
    stays: Mapping[int, Stay]

    def measure(self, job: int, gang: Gang, done: float) -> Measurement | None:
        return self.stays[job].measured

    def limits(self, job: int) -> Any:
        return self.submitted.limits(job)

    def batch(self, job: int) -> float:
        return self.submitted.batch(job)


class LiveView(ClusterView):
    """The view of a live run: progress is counted up to now, and a job has measured what it has said."""

    def measured(self, job: int) -> Measurement | None:
        return self._agents().measure(job, self.running[job], self.done(job))
