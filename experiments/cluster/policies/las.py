"""Least attained service: whoever had least comes first (foreground-background scheduling in rounds).

Without a quantum the policy would switch infinitely often between equals, so it decides in rounds; between
rounds it only fills devices that fall free. Default round: 300 s, as in Synergy (OSDI'22); Gavel (OSDI'20)
takes 360 s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from experiments.cluster.interface import Allocation, ClusterPolicy, ClusterView, Decider
from experiments.core.knobs import knob


@dataclass(frozen=True)
class Las(ClusterPolicy):
    """Runs the jobs that had least service so far, in rounds; knows nothing about how long jobs run."""

    name: ClassVar[str] = "las"
    mechanism: ClassVar[str] = "least service first"
    quick: ClassVar[Mapping[str, Any]] = {"round_length": 7.0}

    round_length: float = knob(300.0, "time between preemptions", low=1e-3, high=86400.0, unit="s")
    key: str = knob("time", "service attained: seconds, or seconds x GPUs", choices=("time", "service"))

    @property
    def round_seconds(self) -> float:
        return self.round_length

    def begin(self) -> Decider:
        return self

    def allocate(self, view: ClusterView) -> Allocation:
        attained = view.attained_service if self.key == "service" else view.attained_time

        def rank(job: int) -> tuple[float, int]:
            return attained(job), job

        if view.round_ended:
            return self.run_first(sorted([*view.running, *view.waiting], key=rank), view)
        if view.is_full:
            return Allocation()
        return Allocation(tuple(self.fill(view.pool.copy(), sorted(view.waiting, key=rank), view)))
