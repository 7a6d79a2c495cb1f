"""Earliest deadline first.

Jobs are ordered by deadline; one without comes last. Under the lab's own engine a job runs on the GPUs it
asked for: those that do not fit are skipped, and a later deadline is preempted. Nothing is refused, and a job
that is past its deadline keeps its place, which is what makes EDF collapse under overload.

Under ElasticFlow's rules (ASPLOS'23, its baseline "EDF") each job in that order takes as many GPUs as its
throughput table goes (``slots``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from experiments.cluster.interface import Allocation, ClusterPolicy, ClusterView, Decider
from experiments.cluster.interface.policy import OWN, rules_of
from experiments.cluster.interface.shares import PlannedShare, SharePlan
from experiments.cluster.planning.performance import table_of
from experiments.cluster.policies.edf.slots import FreeGpus, plan_greedily


@dataclass(frozen=True)
class Edf(ClusterPolicy):
    """Runs the jobs whose deadlines are nearest, preempting others; refuses none."""

    name: ClassVar[str] = "edf"
    mechanism: ClassVar[str] = "deadlines"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    sees: ClassVar[frozenset[str]] = frozenset({"deadline", "batch", "throughput"})
    needs: ClassVar[frozenset[str]] = frozenset({"deadline"})

    rules: str = rules_of("elasticflow")

    def begin(self) -> Decider:
        return _ByDeadline(self) if self.rules == OWN else _Elastic(self)


@dataclass(frozen=True)
class _ByDeadline:
    """Remembers nothing."""

    policy: Edf

    def allocate(self, view: ClusterView) -> Allocation:
        return self.policy.run_first(by_deadline([*view.running, *view.waiting], view), view)


@dataclass(frozen=True)
class _Elastic(_ByDeadline):
    """Plans anew at each event; nothing is charged for restarts in the release's EDF."""

    restarts_cost: ClassVar[bool] = False
    ends_by_plan: ClassVar[bool] = True
    most_gpus: ClassVar[int] = 64

    def plan(self, view: ClusterView, slot: float) -> SharePlan:
        table, free = table_of(view), FreeGpus(view.now, slot, view.pool.machines.devices)
        shares = []
        for job in by_deadline([*view.running, *view.waiting], view):
            most = min(self.most_gpus, free.total, self._batch(job, view))
            levels = [level for level in table.measured(job) if level[0] <= most]
            gpus, ends = plan_greedily(table.work(job) - view.done(job), levels, free)
            shares.append(PlannedShare(job, gpus, ends))
        return SharePlan(shares)

    def _batch(self, job: int, view: ClusterView) -> int:
        """No job has more GPUs than samples in a step."""
        return int(view.jobs.column("batch")[job]) or self.most_gpus


def by_deadline(jobs: Sequence[int], view: ClusterView) -> list[int]:
    """The jobs with the nearest deadline first, equal ones as they were submitted, without one last."""
    deadline = view.jobs.deadline

    def rank(job: int) -> tuple[float, int]:
        return (math.inf if math.isnan(deadline[job]) else deadline[job]), job

    return sorted(jobs, key=rank)
