"""What decides in one run under the lab's rules: at events, and where planned shares change."""

from __future__ import annotations

import math

from experiments.cluster.interface import Allocation, ClusterView, Demand
from experiments.cluster.planning.performance import table_of
from experiments.cluster.planning.placing import gangs_for
from experiments.cluster.policies.elasticflow.admission import (
    MISSES,
    Guarantees,
    capacity,
    gpus_at,
    next_change,
    steps_left,
)
from experiments.cluster.policies.elasticflow.spare import give_spare

Refused = tuple[tuple[int, str], ...]


class AtEvents:
    """Admits jobs one by one and resizes them at events and where planned shares change."""

    def __init__(self, slot: float, placement: str) -> None:
        self.guarantees, self.placement = Guarantees(slot), placement

    def allocate(self, view: ClusterView) -> Allocation:
        self.guarantees.forget(view.ended)
        refused: Refused = ()
        for job in sorted(view.arrived, key=lambda job: (_deadline(job, view), job)):
            refused += _admit(self.guarantees, (job,), view)
        self.guarantees.replan(view)
        wanted = all_shares(self.guarantees, view)
        return Allocation(
            start=tuple(gangs_for({job: Demand(gpus) for job, gpus in wanted.items()}, view, self.placement)),
            preempt=tuple(job for job in view.running if not wanted.get(job)),
            reject=refused,
            wake_at=next_change(self.guarantees.shares, view.now),
        )


def _deadline(job: int, view: ClusterView) -> float:
    deadline = view.jobs.deadline[job]
    return math.inf if math.isnan(deadline) else deadline


def _admit(guarantees: Guarantees, jobs: tuple[int, ...], view: ClusterView) -> Refused:
    """Take in new jobs, all or none; best-effort jobs wait for what is left. Those refused, with reasons."""
    table, total = table_of(view), len(view.pool.machines.node_of)
    small = [job for job in jobs if table.levels(job)[0][0] <= total]
    refused = tuple(
        (job, f"runs on no fewer than {table.levels(job)[0][0]} GPUs") for job in jobs if job not in small
    )
    best_effort = [job for job in small if math.isnan(view.jobs.deadline[job])]
    guarantees.others |= dict.fromkeys(best_effort)
    asking = [job for job in small if job not in best_effort]
    if asking and not guarantees.admit(asking, view):
        refused += tuple((job, MISSES) for job in asking)
    return refused


def all_shares(guarantees: Guarantees, view: ClusterView) -> dict[int, int]:
    """GPUs of every admitted job now: those reserved, and what is free besides."""
    table = table_of(view)
    shares = {job: gpus_at(share, view.now) for job, share in guarantees.shares.items()}
    shares |= dict.fromkeys(guarantees.others, 0)
    order = sorted(shares, key=lambda job: (_deadline(job, view), job))
    levels = {job: table.levels(job) for job in order}
    left = {job: steps_left(job, table, view) for job in order}
    return give_spare({job: shares[job] for job in order}, levels, left, capacity(view))
