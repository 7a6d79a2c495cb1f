"""Faabric, the scheduler of Granny (NSDI'25): apps are granules that are packed, and moved to pack better.

A granule is a thread or a process of an app; here a GPU's worker of a job. Three decisions (``hosts``):

- NEW: hosts with most free slots are filled in order, all granules or none.
- SCALE: an app that has fewer granules than it wants gets more, where it has most (``faabric-elastic``).
- DIST: at a barrier every ``check_period`` an app is placed anew as if it did not run. It migrates if that
  takes fewer hosts, or as many with fewer pairs of granules on different ones; granules are relabelled so
  that as few as possible move.

The variant ``compact`` fills the fullest hosts when it places anew, accepts what leaves more hosts empty, and
keeps tenants on hosts of their own; ``spot`` leaves hosts that are about to be reclaimed (``failure_notice``)
and freezes apps for which there is no other place.

DIST fills an app's own hosts first, as the scheduler's first release; a later one fills the freest hosts and
only breaks ties so (``first``). Chosen here: first come, first served, the first that does not fit holds up
the others; what a migration costs are the knobs that all policies have. Jobs that want parts of a GPU, or
none, are packed and never move.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import ClassVar

from experiments.cluster.interface import Allocation, ClusterPolicy, ClusterView, Decider, Demand, Gang, Pool
from experiments.cluster.policies.faabric.hosts import (
    Order,
    Spread,
    fill,
    freest,
    fullest,
    gang_on,
    hosts_for,
    links,
    new,
    scale,
)
from experiments.core.knobs import knob

BIN_PACK, COMPACT, SPOT = "bin-pack", "compact", "spot"
OWN_HOSTS, FREEST_HOSTS = "own hosts", "freest hosts"
#: Checks that are due within so many seconds are due: sums of floating-point times are not exact.
SLACK = 1e-6


@dataclass(frozen=True)
class Faabric(ClusterPolicy):
    """Packs granules of jobs onto few hosts and migrates them when others leave."""

    name: ClassVar[str] = "faabric"
    mechanism: ClassVar[str] = "against fragments"
    sees: ClassVar[frozenset[str]] = frozenset({"tenant"})
    grows: ClassVar[bool] = False

    variant: str = knob(
        BIN_PACK, "few hosts for each app, few for all, or none that leave", choices=(BIN_PACK, COMPACT, SPOT)
    )
    first: str = knob(
        OWN_HOSTS, "which hosts an app that is placed anew fills first", choices=(OWN_HOSTS, FREEST_HOSTS)
    )
    check_period: float = knob(30.0, "between looks for migrations", low=1e-3, high=86400.0, unit="s")
    threads: bool = knob(
        False, "granules are threads of one process, which stay on one host where one holds them"
    )
    blocking: bool = knob(True, "nothing starts before the first; false: skip what does not fit")

    def begin(self) -> Decider:
        return _Planner(self)


@dataclass(frozen=True)
class FaabricElastic(Faabric):
    """Starts jobs with the granules that there are slots for, and gives them the others later."""

    name: ClassVar[str] = "faabric-elastic"
    mechanism: ClassVar[str] = "resize to the best use"
    rigid: ClassVar[bool] = False
    grows: ClassVar[bool] = True

    def insists_on(self, demand: Demand) -> Demand:
        """One granule, with its part of the processors and memory."""
        return demand.of(1) if demand.gpus else demand


@dataclass
class _Round:
    """What is decided at one time: who has what, and who loses it."""

    view: ClusterView
    pool: Pool
    gangs: dict[int, Gang]
    frozen: list[int] = field(default_factory=list)

    def give(self, gang: Gang) -> None:
        if gang.job in self.gangs:
            self.pool.give_back(self.gangs[gang.job])
        self.pool.take(gang)
        self.gangs[gang.job] = gang

    def own(self, job: int) -> Spread:
        """How many granules of a job each node has."""
        gang = self.gangs.get(job)
        return dict(self.pool.machines.by_node(gang.devices)) if gang else {}

    def without(self, job: int) -> Pool:
        """What would be free if a job did not run."""
        pool = self.pool.copy()
        pool.give_back(self.gangs[job])
        return pool


@dataclass
class _Planner:
    """``queue`` are waiting jobs in the order of submission; ``check_at`` is the next look for migrations."""

    policy: Faabric
    queue: list[int] = field(default_factory=list)
    check_at: float | None = None

    def allocate(self, view: ClusterView) -> Allocation:
        for job in (*view.arrived, *view.stopped):
            heapq.heappush(self.queue, job)
        now = _Round(view, view.pool.copy(), dict(view.running))
        if self.policy.variant == SPOT:
            self._leave(now)
        self._start(now)
        if self.policy.grows:
            self._grow(now)
        self._check(now, changed=bool(view.ended or view.stopped))
        for job in now.frozen:
            heapq.heappush(self.queue, job)
        changed = tuple(gang for job, gang in now.gangs.items() if view.running.get(job) is not gang)
        return Allocation(changed, tuple(now.frozen), wake_at=self.check_at)

    def _start(self, now: _Round) -> None:
        """NEW, in the order of submission."""
        skipped: list[int] = []
        while self.queue:
            job = heapq.heappop(self.queue)
            gang = self._place_new(job, now)
            if gang is not None:
                now.give(gang)
                continue
            skipped.append(job)
            if self.policy.blocking:
                break
        for job in skipped:
            heapq.heappush(self.queue, job)

    def _place_new(self, job: int, now: _Round) -> Gang | None:
        demand = now.view.jobs.demand(job)
        if not _moves(demand):
            return now.pool.place(job, demand, "pack")
        if now.pool.total < (1 if self.policy.grows else demand.gpus):
            return None
        hosts = hosts_for(now.pool, demand, {}, self._closed(job, now))
        granules = demand.gpus
        if self.policy.grows:
            granules = min(granules, sum(host.free for host in hosts))
        spread = fill(hosts, new, granules, one_host=self._is_process(demand, now)) if granules else None
        return gang_on(job, spread, demand.of(granules), now.pool) if spread else None

    def _grow(self, now: _Round) -> None:
        """SCALE: more granules for running apps that have too few, in the order of submission."""
        for job in sorted(now.gangs):
            demand, gang = now.view.jobs.demand(job), now.gangs[job]
            if not now.pool.total or not _moves(demand) or gang.size >= demand.gpus:
                continue
            own = now.own(job)
            hosts = hosts_for(now.pool, demand, own, self._closed(job, now))
            if self._is_process(demand, now):
                hosts = [host for host in hosts if host.own]
            more = min(demand.gpus - gang.size, sum(host.free for host in hosts))
            added = fill(hosts, scale, more) if more else None
            if added:
                spread = {node: own.get(node, 0) + added.get(node, 0) for node in {**own, **added}}
                part = demand.of(gang.size + more)
                now.give(gang_on(job, spread, part, now.without(job), gang.devices))

    def _check(self, now: _Round, *, changed: bool) -> None:
        """DIST at a barrier, once anything has left since the last one; again where something moved."""
        time = now.view.now
        if changed and self.check_at is None:
            self.check_at = time + self.policy.check_period
        if self.check_at is None or self.check_at > time + SLACK:
            return
        moved = [job for job in tuple(now.gangs) if job in now.view.running and self._migrate(job, now)]
        self.check_at = time + self.policy.check_period if moved else None

    def _migrate(self, job: int, now: _Round) -> bool:
        """Place an app anew, and move it where that is better."""
        demand, gang = now.view.jobs.demand(job), now.gangs[job]
        if not _moves(demand) or self.policy.variant == SPOT:
            return False
        own = now.own(job)
        if not self._could_be_better(own, now.pool):
            return False
        pool = now.without(job)
        order: Order = scale if self.policy.first == OWN_HOSTS else freest
        if self.policy.variant == COMPACT:
            order = fullest
        hosts = hosts_for(pool, demand.of(gang.size), own, self._closed(job, now))
        spread = fill(hosts, order, gang.size, one_host=self._is_process(demand, now))
        if spread is None or not self._is_better(spread, own, pool):
            return False
        now.give(gang_on(job, spread, demand.of(gang.size), pool, gang.devices))
        return True

    def _could_be_better(self, own: Spread, pool: Pool) -> bool:
        """Whether an app is on several hosts, or, for ``compact``, alone on one."""
        if self.policy.variant != COMPACT:
            return len(own) > 1
        return any(pool.capacity[node] - pool.free[node] == count for node, count in own.items())

    def _is_better(self, spread: Spread, own: Spread, pool: Pool) -> bool:
        if self.policy.variant == COMPACT:
            empty = {node for node, slots in enumerate(pool.capacity) if slots and pool.free[node] == slots}
            return len(empty - spread.keys()) > len(empty - own.keys())
        return links(spread) < links(own)

    def _leave(self, now: _Round) -> None:
        """Move granules off hosts that are about to be reclaimed, or freeze their apps."""
        leaving = now.view.leaving.keys()
        for job, gang in tuple(now.gangs.items()):
            own = now.own(job)
            if not leaving & own.keys():
                continue
            demand, pool = now.view.jobs.demand(job), now.without(job)
            spread = None
            if _moves(demand):
                hosts = hosts_for(pool, demand.of(gang.size), own, leaving)
                spread = fill(hosts, scale, gang.size, one_host=self._is_process(demand, now))
            if spread:
                now.give(gang_on(job, spread, demand.of(gang.size), pool, gang.devices))
            else:
                now.pool.give_back(now.gangs.pop(job))
                now.frozen.append(job)

    def _is_process(self, demand: Demand, now: _Round) -> bool:
        """Whether a job is threads, and some host would hold them all."""
        return self.policy.threads and demand.gpus <= max(now.pool.machines.sizes)

    def _closed(self, job: int, now: _Round) -> Collection[int]:
        """Hosts that an app may not use: those of other tenants, or those that leave."""
        if self.policy.variant == SPOT:
            return now.view.leaving.keys()
        if self.policy.variant != COMPACT:
            return ()
        tenant, machines = now.view.jobs.tenant, now.pool.machines
        others = (gang for other, gang in now.gangs.items() if tenant[other] != tenant[job])
        return {machines.node_of[device] for gang in others for device in gang.devices}


def _moves(demand: Demand) -> bool:
    """Whether a job is granules of whole GPUs."""
    return demand.share == 1 and demand.gpus > 0
