"""Waiting jobs by what they ask for, each such line in the order of what is predicted.

Jobs that ask for the same fit or do not fit together, so that only the first of each line is ever tried.
Predictions change while jobs wait: entries that hold no longer are dropped when they come first.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from experiments.cluster.interface import Demand
from experiments.cluster.policies.pai.predictions import Predictions


@dataclass
class _Line:
    """Jobs that ask for the same.

    - ``by_feature``: heaps of jobs.
    - ``ranked``: what is predicted of features, and the first job of each.
    - ``unknown``: jobs of whose feature nothing had ended when they came.
    """

    by_feature: dict[Hashable, list[int]] = field(default_factory=dict)
    ranked: list[tuple[float, int, Hashable]] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)


@dataclass
class PredictedJobs:
    """The jobs that wait, and for what."""

    predictions: Predictions
    lines: dict[Demand, _Line] = field(default_factory=dict)
    where: dict[int, tuple[Demand, Hashable]] = field(default_factory=dict)
    counts: dict[Demand, int] = field(default_factory=dict)
    asking: dict[Hashable, dict[Demand, None]] = field(default_factory=dict)

    def __contains__(self, job: int) -> bool:
        return job in self.where

    def has(self, demand: Demand) -> bool:
        """Whether any job waits for it."""
        return demand in self.counts

    def demands(self) -> Sequence[Demand]:
        """All that is asked for, each once."""
        return tuple(self.counts)

    def add(self, job: int, demand: Demand, feature: Hashable) -> None:
        line = self.lines.setdefault(demand, _Line())
        self.where[job] = (demand, feature)
        self.counts[demand] = self.counts.get(demand, 0) + 1
        self.asking.setdefault(feature, {})[demand] = None
        heapq.heappush(line.by_feature.setdefault(feature, []), job)
        if self.predictions.predict(feature) is None:
            heapq.heappush(line.unknown, job)
        else:
            self._rank(demand, feature)

    def move(self, job: int, demand: Demand) -> None:
        """Let a job wait for something else."""
        feature = self.where[job][1]
        self.remove(job)
        self.add(job, demand, feature)

    def remove(self, job: int) -> None:
        demand, feature = self.where.pop(job)
        self.counts[demand] -= 1
        if not self.counts[demand]:
            del self.counts[demand], self.lines[demand]
        else:
            self._rank(demand, feature)

    def learn(self, feature: Hashable) -> None:
        """Rank a feature anew about which there is news."""
        for demand in list(self.asking.get(feature, ())):
            if demand in self.lines and self._head(demand, feature) is not None:
                self._rank(demand, feature)
            else:
                del self.asking[feature][demand]

    def first(self, demand: Demand) -> tuple[float, int]:
        """What is predicted of the first job that waits for ``demand``, and its number."""
        found = [one for one in (self._known(demand), self._unknown(demand)) if one is not None]
        return min(found)

    def _known(self, demand: Demand) -> tuple[float, int] | None:
        ranked = self.lines[demand].ranked
        while ranked:
            seconds, job, feature = ranked[0]
            if self._head(demand, feature) == job and self.predictions.predict(feature) == seconds:
                return seconds, job
            heapq.heappop(ranked)
        return None

    def _unknown(self, demand: Demand) -> tuple[float, int] | None:
        jobs = self.lines[demand].unknown
        while jobs:
            asked, feature = self.where.get(jobs[0], (None, None))
            if asked == demand and self.predictions.predict(feature) is None:
                return self.predictions.of_others, jobs[0]
            heapq.heappop(jobs)
        return None

    def _rank(self, demand: Demand, feature: Hashable) -> None:
        seconds, head = self.predictions.predict(feature), self._head(demand, feature)
        if seconds is not None and head is not None:
            heapq.heappush(self.lines[demand].ranked, (seconds, head, feature))

    def _head(self, demand: Demand, feature: Hashable) -> int | None:
        """The first job of a feature that waits for ``demand``."""
        by_feature = self.lines[demand].by_feature
        jobs = by_feature.get(feature, [])
        while jobs and self.where.get(jobs[0], (None,))[0] != demand:
            heapq.heappop(jobs)
        if not jobs:
            by_feature.pop(feature, None)
            return None
        return jobs[0]
