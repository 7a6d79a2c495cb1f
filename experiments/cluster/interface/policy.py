"""The questions asked of a cluster policy, and the walks that several of them share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from experiments.cluster.interface.allocation import Allocation, Gang
from experiments.cluster.interface.placement import PLACEMENTS, Pool
from experiments.cluster.interface.view import ClusterView
from experiments.core.knobs import knob
from experiments.core.policy import Policy


class Decider(Protocol):
    """Asked at every arrival, completion, round and wake-up, after all that happened at that time."""

    def allocate(self, view: ClusterView) -> Allocation: ...


@dataclass(frozen=True)
class ClusterPolicy(Policy):
    """A policy that says which job runs where, and until when.

    ``sees`` names the hidden columns of the trace that it may look at.

    A ``rigid`` policy gives each job the GPUs that it asked for, whole and no others.
    ``round_seconds`` is the round length in s, ``None`` for a policy that decides at events only.
    """

    family: ClassVar[str] = "cluster"
    workloads: ClassVar[Mapping[str, tuple[str, ...]]] = {"simulated": ("jobs",)}
    sees: ClassVar[frozenset[str]] = frozenset()
    rigid: ClassVar[bool] = True

    placement: str = knob("count", "which free devices a job gets", choices=tuple(PLACEMENTS))
    restart_cost: float = knob(
        0.0, "time without progress when a job resumes", low=0.0, high=86400.0, unit="s"
    )

    @property
    def round_seconds(self) -> float | None:
        return None

    def begin(self) -> Decider:
        """What decides during one run: a fresh object, which may remember what it decided before."""
        raise NotImplementedError(type(self).__name__)

    def fill(
        self, pool: Pool, ranked: Iterable[int], view: ClusterView, *, block: bool = False
    ) -> list[Gang]:
        """Return gangs for waiting jobs in order, taken from ``pool``.

        Jobs that do not fit are skipped, or ``block`` the rest.
        """
        started = []
        for job in ranked:
            if pool.total < 1:
                break
            gang = pool.place(job, view.jobs.gpus[job], self.placement)
            if gang is not None:
                pool.take(gang)
                started.append(gang)
            elif block:
                break
        return started

    def run_first(self, ranked: Iterable[int], view: ClusterView) -> Allocation:
        """Give devices to unfinished jobs in order, skipping those that do not fit; the others are preempted.

        Jobs that keep running keep their devices.
        """
        chosen: dict[int, None] = {}
        left = sum(view.pool.capacity)
        for job in ranked:
            if left < 1:
                break
            if view.jobs.gpus[job] <= left:
                left -= view.jobs.gpus[job]
                chosen[job] = None
        losers = [job for job in view.running if job not in chosen]
        pool = view.pool.copy()
        for job in losers:
            pool.give_back(view.running[job])
        started = self.fill(pool, [job for job in chosen if job not in view.running], view)
        preempted = losers if self.placement == "count" else _jobs_to_preempt(losers, pool, view)
        return Allocation(tuple(started), tuple(preempted))


def _jobs_to_preempt(losers: Iterable[int], pool: Pool, view: ClusterView) -> list[int]:
    """The losers whose devices were really taken: a better job may not have found a place that its rule
    allows.
    """
    preempted = []
    for job in losers:
        gang = view.running[job]
        if all(pool.free[node] >= count * gang.share for node, count in gang.devices):
            pool.take(gang)
        else:
            preempted.append(job)
    return preempted
