"""Clockwork++: placements that follow the load, window by window (AlpaServe, section 6.1, after Clockwork).

The trace is cut into windows. For each, models are replicated on single devices by the requests of that very
window, and placements are exchanged at its start at no cost: an idealized Clockwork, which no system can be.
``lag`` plans by an earlier window instead, and ``swap`` copies what a device lacks over its host's link,
while requests for it wait. Requests that a device was given before an exchange end on it first.

Left out: Clockwork itself, whose controller loads single models and times every pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from experiments.core.knobs import knob
from experiments.core.policy import SECONDS
from experiments.serving.interface.deployment import (
    Action,
    Deployment,
    DeploymentPolicy,
    DeploymentView,
    Dispatcher,
    Group,
    Placement,
    Regroup,
    Wake,
)
from experiments.serving.planning.groups.evaluator import Evaluator
from experiments.serving.planning.groups.replicas import ReplicaSearch
from experiments.serving.planning.groups.shortest_queue import ShortestQueue
from experiments.workloads.scenario import ScenarioRequests


@dataclass(frozen=True)
class Clockwork(DeploymentPolicy):
    """Replicas on single devices, placed anew for each window of the trace by its own requests."""

    name: ClassVar[str] = "clockwork"
    effort: ClassVar[str] = SECONDS

    window: float = knob(60.0, "length of a window", low=1e-3, high=1e8, unit="s")
    lag: int = knob(0, "windows before, by whose requests one is planned", low=0, high=1000)
    swap: bool = knob(False, "exchanged weights are copied from the host")

    @property
    def sees_trace(self) -> bool:
        return True

    def place(self, deployment: Deployment, sample: ScenarioRequests) -> Placement:
        """The placement of the first window; with a lag nothing is known of it, and nothing is placed."""
        groups = self.plan_windows(deployment, sample)[0]
        return Placement(groups, plan={"window": self.window})

    def dispatch(self, deployment: Deployment, placement: Placement, sample: ScenarioRequests) -> Dispatcher:
        return Windows(placement, self.plan_windows(deployment, sample), self.window, is_free=not self.swap)

    def plan_windows(self, deployment: Deployment, sample: ScenarioRequests) -> list[tuple[Group, ...]]:
        """Return the groups of each window."""
        empty = tuple(Group((device,)) for device in range(deployment.cluster.devices))
        own = sample.parent < 0
        number = (sample.arrival[own] // self.window).astype(np.int64)
        windows = []
        for window in range(int(number.max(initial=0)) + 1):
            kept = np.flatnonzero(own)[number == window - self.lag]
            asked = ScenarioRequests(sample.arrival[kept], sample.model[kept], sample.parent[kept])
            models = sorted(set(asked.model.tolist()))
            search = ReplicaSearch(deployment, Evaluator(deployment, asked), models)
            windows.append(search.fast_greedy(empty).groups if models else empty)
        return windows


class Windows(ShortestQueue):
    """Dispatch to the shortest queue, on the groups of the window that it is."""

    def __init__(
        self, placement: Placement, windows: Sequence[tuple[Group, ...]], length: float, is_free: bool
    ) -> None:
        super().__init__(placement)
        self.windows, self.length, self.is_free = windows, length, is_free
        self.current = 0

    def on_start(self, view: DeploymentView) -> Sequence[Action]:
        return self._next()

    def on_time(self, view: DeploymentView) -> Sequence[Action]:
        self.current += 1
        return (Regroup(self.windows[self.current], self.is_free), *self._next())

    def _next(self) -> tuple[Wake, ...]:
        if self.current + 1 >= len(self.windows):
            return ()
        return (Wake((self.current + 1) * self.length),)
