"""What elastic policies answer where a published simulator asks for a plan instead of gangs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from experiments.cluster.interface.view import ClusterView


@dataclass(frozen=True, slots=True)
class PlannedShare:
    """``job`` has ``gpus`` devices from now on (0: it waits) and ends at ``ends`` (s) if the plan holds.

    ``noticed``: when the release looks at that; at once where it is not told.
    """

    job: int
    gpus: int
    ends: float
    noticed: float | None = None


@dataclass(frozen=True)
class SharePlan:
    """The shares of all jobs that run or wait, apart from those refused, each with its reason.

    ``change_at``: when some planned share changes next (s).
    """

    shares: Sequence[PlannedShare]
    reject: tuple[tuple[int, str], ...] = ()
    change_at: float | None = None


@runtime_checkable
class SharePlanner(Protocol):
    """A decider that plans how many devices each job has, in slots of ``slot`` seconds from now on.

    ``restarts_cost`` says whether the release charges it for restarting jobs, ``ends_by_plan`` whether a job
    that has no GPUs when its planned end comes is done all the same.
    """

    restarts_cost: bool
    ends_by_plan: bool

    def plan(self, view: ClusterView, slot: float) -> SharePlan: ...
