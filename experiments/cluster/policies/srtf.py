"""Shortest remaining time first, with preemption: optimal for the mean on one device when nothing is lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.cluster.interface import Allocation, ClusterPolicy, ClusterView, Decider
from experiments.core.knobs import knob


@dataclass(frozen=True)
class Srtf(ClusterPolicy):
    """Runs the jobs with the least time left, preempting others; knows how long jobs run."""

    name: ClassVar[str] = "srtf"
    mechanism: ClassVar[str] = "know how long jobs run"
    sees: ClassVar[frozenset[str]] = frozenset({"service"})

    key: str = knob(
        "remaining", "what is short: seconds left, or seconds left x GPUs", choices=("remaining", "service")
    )

    def begin(self) -> Decider:
        return self

    def allocate(self, view: ClusterView) -> Allocation:
        def rank(job: int) -> tuple[float, bool, int]:
            """A running job wins ties, so that equals do not take turns."""
            weight = view.jobs.gpus[job] if self.key == "service" else 1
            return view.remaining(job) * weight, job not in view.running, job

        return self.run_first(sorted([*view.running, *view.waiting], key=rank), view)
