"""Dominant resource fairness, NSDI'11: the tenant whose largest share of any resource is least comes next.

A tenant's share of a resource (GPUs, processors, host memory) is what its running jobs hold over what the
cluster has; the largest of its shares is its dominant one. Progressive filling (section 4.1): again and again
the tenant with the smallest dominant share gets one job, among those that have one that fits. What a job
holds counts ``1 / weight`` times (section 4.3).

Choices where the paper leaves them open: a task is a job; a tenant's jobs go in the order of submission,
those that do not fit are skipped; of equal tenants the one whose next job came first goes first. Devices of
all types are one resource. In a trace without tenants each job stands for itself: first come, first served,
skipping what does not fit. The paper does not preempt; with a round length the cluster is filled anew at the
end of each round.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from experiments.cluster.interface import (
    NOTHING,
    Allocation,
    ClusterPolicy,
    ClusterView,
    Decider,
    Demand,
    Gang,
    Machines,
    Pool,
)
from experiments.core.knobs import knob

#: In place of a job where a tenant has none that could start.
NOBODY = -1
#: GPUs, processors, bytes of host memory.
Amounts = tuple[float, float, float]


@dataclass(frozen=True)
class Drf(ClusterPolicy):
    """Gives the next job to the tenant that has the least of what it has most of."""

    name: ClassVar[str] = "drf"
    mechanism: ClassVar[str] = "fair division"
    sees: ClassVar[frozenset[str]] = frozenset({"tenant", "weight"})

    round_length: float | None = knob(
        None, "time between preemptions; empty: nothing is preempted", low=1e-3, high=86400.0, unit="s"
    )

    @property
    def round_seconds(self) -> float | None:
        return self.round_length

    def begin(self) -> Decider:
        return _ProgressiveFilling(self)


class Claim(NamedTuple):
    """What one job asks for, and its part in a fair division."""

    demand: Demand
    weight: float


@dataclass
class Tenant:
    """What a tenant's running jobs hold, and its waiting jobs by what they ask for.

    Jobs that ask for the same fit or do not fit together.
    """

    held: Counter[Claim] = field(default_factory=Counter)
    lines: dict[Demand, list[int]] = field(default_factory=dict)

    def queue(self, job: int, demand: Demand) -> None:
        heapq.heappush(self.lines.setdefault(demand, []), job)

    def leave(self, job: int, demand: Demand) -> None:
        self.lines[demand].remove(job)
        heapq.heapify(self.lines[demand])

    def first(self, hopeless: Set[Demand]) -> int | None:
        """The first of its waiting jobs that does not ask for what is ``hopeless``."""
        heads = (line[0] for demand, line in self.lines.items() if line and demand not in hopeless)
        return min(heads, default=None)

    def dominant_share(self, whole: Amounts) -> float:
        """The largest of its shares of GPUs, processors and memory, by weight."""
        held = [(_amounts(claim.demand), count / claim.weight) for claim, count in self.held.items()]
        sums = (math.fsum(amounts[which] * times for amounts, times in held) for which in range(len(whole)))
        return max(mine / all_of_it if mine else 0.0 for mine, all_of_it in zip(sums, whole, strict=True))


def _amounts(demand: Demand) -> Amounts:
    return demand.gpus * demand.share, demand.cpus, demand.memory


def _capacity(machines: Machines) -> Amounts:
    cpus, memory = (math.fsum(getattr(node, what) for node in machines) for what in ("cpus", "memory"))
    return float(machines.devices), cpus, memory


@dataclass
class _ProgressiveFilling:
    policy: Drf
    tenants: dict[str, Tenant] = field(default_factory=dict)
    whole: Amounts | None = None

    def allocate(self, view: ClusterView) -> Allocation:
        for job in (*view.ended, *view.stopped):
            self._count(job, -1, view)
        for job in (*view.arrived, *view.stopped):
            self._queue(job, view)
        if view.round_ended and view.waiting:
            return self._begin_anew(view)
        if not view.waiting or view.is_full:
            return NOTHING
        return Allocation(tuple(self._fill(view.pool.copy(), view)))

    def _begin_anew(self, view: ClusterView) -> Allocation:
        """Fill the cluster as if nothing ran, and keep what runs and is among it where it is."""
        pool = view.pool.copy()
        for job, gang in view.running.items():
            pool.give_back(gang)
            self._count(job, -1, view)
            self._queue(job, view)
        filled = {gang.job: None for gang in self._fill(pool, view)}
        decision = self.policy.run_only(filled, view)
        runs = {*view.running, *(gang.job for gang in decision.start)} - {*decision.preempt}
        for job in filled.keys() - runs:
            self._count(job, -1, view)
            self._queue(job, view)
        for job in runs - filled.keys():
            self._count(job, +1, view)
            self._tenant(job, view).leave(job, view.jobs.demand(job))
        return decision

    def _fill(self, pool: Pool, view: ClusterView) -> list[Gang]:
        """Give jobs what is free, one at a time."""
        started, hopeless = list[Gang](), set[Demand]()
        self.whole = self.whole or _capacity(view.pool.machines)
        ranked = [self._ranked(name, hopeless) for name in self.tenants]
        heapq.heapify(ranked)
        while ranked:
            _, job, name = heapq.heappop(ranked)
            if job == NOBODY:
                continue
            demand = view.jobs.demand(job)
            gang = None
            if demand not in hopeless:
                gang = pool.place(job, demand, self.policy.placement_of(job, view))
            if gang is None:
                hopeless.add(demand)
            else:
                pool.take(gang)
                started.append(gang)
                heapq.heappop(self.tenants[name].lines[demand])
                self._count(job, +1, view)
            heapq.heappush(ranked, self._ranked(name, hopeless))
        return started

    def _ranked(self, name: str, hopeless: Set[Demand]) -> tuple[float, int, str]:
        """A tenant's dominant share and its next job; jobs without a tenant stand for themselves."""
        tenant = self.tenants[name]
        job = tenant.first(hopeless)
        share = tenant.dominant_share(self.whole) if name and job is not None and self.whole else 0.0
        return share, NOBODY if job is None else job, name

    def _queue(self, job: int, view: ClusterView) -> None:
        self._tenant(job, view).queue(job, view.jobs.demand(job))

    def _count(self, job: int, by: int, view: ClusterView) -> None:
        """Note that a job holds what it asks for, or no longer does."""
        weight = view.jobs.column("weight")[job] if view.jobs.tells("weight") else 1.0
        held, claim = self._tenant(job, view).held, Claim(view.jobs.demand(job), weight)
        held[claim] += by
        if not held[claim]:
            del held[claim]

    def _tenant(self, job: int, view: ClusterView) -> Tenant:
        return self.tenants.setdefault(view.jobs.tenant[job], Tenant())
