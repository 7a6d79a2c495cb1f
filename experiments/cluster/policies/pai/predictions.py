"""How long a waiting job will run: by the mean of ended jobs that are like it in some feature."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from experiments.cluster.interface import ClusterView

FIFO = "fifo"


class Predictions(Protocol):
    """Jobs with the same feature are predicted alike."""

    def feature(self, job: int, view: ClusterView) -> Hashable: ...

    def add(self, job: int, view: ClusterView) -> Hashable:
        """Note a job that has ended; the feature about which there is news."""
        ...

    def predict(self, feature: Hashable) -> float | None:
        """Seconds that a job of it will take; ``None`` where nothing like it has ended."""
        ...

    @property
    def of_others(self) -> float:
        """What is expected where nothing like a job has ended."""
        ...


def _group(job: int, view: ClusterView) -> Hashable:
    """Its group; without one its user."""
    group = view.jobs.column("group")[job] if view.jobs.tells("group") else ""
    return (group, "") if group else ("", _user(job, view))


def _user(job: int, view: ClusterView) -> Hashable:
    return str(view.jobs.column("user")[job])


def _group_and_gpus(job: int, view: ClusterView) -> Hashable:
    demand = view.jobs.demand(job)
    return (_group(job, view), demand.gpus, demand.share)


#: What jobs have in common under each of the paper's orders.
BY_FEATURE: Mapping[str, Callable[[int, ClusterView], Hashable]] = {
    "sju": _user,
    "sjg": _group,
    "sjgg": _group_and_gpus,
}


@dataclass
class EndedJobs:
    """Means of what has ended, by feature and over all."""

    feature_of: Callable[[int, ClusterView], Hashable]
    sums: dict[Hashable, tuple[float, int]] = field(default_factory=dict)
    total: float = 0.0
    count: int = 0

    def feature(self, job: int, view: ClusterView) -> Hashable:
        return self.feature_of(job, view)

    def add(self, job: int, view: ClusterView) -> Hashable:
        feature, seconds = self.feature_of(job, view), view.attained.seconds[job]
        total, count = self.sums.get(feature, (0.0, 0))
        self.sums[feature] = (total + seconds, count + 1)
        self.total, self.count = self.total + seconds, self.count + 1
        return feature

    def predict(self, feature: Hashable) -> float | None:
        if feature not in self.sums:
            return None
        total, count = self.sums[feature]
        return total / count

    @property
    def of_others(self) -> float:
        return self.total / self.count if self.count else 0.0


class Unranked:
    """All alike: the order of submission is left."""

    of_others = 0.0

    def feature(self, job: int, view: ClusterView) -> Hashable:
        return None

    def add(self, job: int, view: ClusterView) -> Hashable:
        return None

    def predict(self, feature: Hashable) -> float:
        return 0.0


@dataclass
class Known:
    """True durations: every job is a kind of its own."""

    seconds: dict[Hashable, float] = field(default_factory=dict)
    of_others: float = 0.0

    def feature(self, job: int, view: ClusterView) -> Hashable:
        self.seconds[job] = view.jobs.service[job]
        return job

    def add(self, job: int, view: ClusterView) -> Hashable:
        return job

    def predict(self, feature: Hashable) -> float | None:
        return self.seconds[feature]
