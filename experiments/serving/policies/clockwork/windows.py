"""Placements that follow the load, window by window."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.serving.interface.deployment import (
    Action,
    Deployment,
    DeploymentView,
    Group,
    Placement,
    Regroup,
    Wake,
)
from experiments.serving.planning.groups.evaluator import Evaluator
from experiments.serving.planning.groups.replicas import ReplicaSearch
from experiments.serving.planning.groups.shortest_queue import ShortestQueue
from experiments.workloads.scenario import ScenarioRequests


def plan_windows(
    deployment: Deployment,
    sample: ScenarioRequests,
    empty: tuple[Group, ...],
    length: float,
    lag: int,
) -> list[tuple[Group, ...]]:
    """Return ``empty`` filled for each window of ``length`` s, by requests of the window ``lag`` before it.

    Where nothing is known of that one, nothing is placed.
    """
    own = sample.parent < 0
    number = (sample.arrival[own] // length).astype(np.int64)
    windows = []
    for window in range(int(number.max(initial=0)) + 1):
        kept = np.flatnonzero(own)[number == window - lag]
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
