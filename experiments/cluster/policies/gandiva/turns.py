"""Who runs in this slice: jobs that share devices take turns, alone or packed in pairs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field

from experiments.cluster.interface import Allocation, ClusterView, Devices, Gang, Pool
from experiments.cluster.policies.gandiva.emptying import vacate_least_loaded
from experiments.cluster.policies.gandiva.growth import lend, list_grown
from experiments.cluster.policies.gandiva.homes import Homes
from experiments.cluster.policies.gandiva.packing import Packing
from experiments.cluster.policies.gandiva.search import is_searched, losers

#: Times within this of each other are one.
SLACK = 1e-9


@dataclass
class Turns:
    """``boundary``: when the present slice ends (s), ``due`` whether turns change then.

    The turn of the longest wait comes first.
    ``next`` are gangs, each with the time at which it has been resumed, or those before it are suspended.
    """

    slice_length: float
    switch_time: float
    packs: bool
    stops_early: bool
    grows: bool = False
    empties: bool = False
    homes: Homes | None = None
    packing: Packing = field(default_factory=Packing)
    boundary: float = -math.inf
    due: bool = False
    next: list[tuple[float, Gang]] = field(default_factory=list)
    searched: dict[int, None] = field(default_factory=dict)

    def allocate(self, view: ClusterView) -> Allocation:
        self.homes = self.homes or Homes(view.pool.machines)
        self._forget(view, self.homes)
        for job in view.arrived:
            self._settle(job, view, self.homes)
        self.packing.measure(view)
        lost = dict(losers(view, self.searched)) if self.stops_early else {}
        for job in lost:
            self._drop(job, self.homes)
        self._keep_clock(view.now)
        decision = self._turn(view, self.homes, lost) if view.now >= self.boundary - SLACK else None
        if decision is None:
            decision = self._between(view, self.homes, lost)
        if self.grows:
            decision = self._lend(decision, view, self.homes, lost)
        return self._told(decision, lost, view)

    def _forget(self, view: ClusterView, homes: Homes) -> None:
        """Jobs that have ended leave; those whose nodes fail find another home."""
        for job in view.ended:
            homes.leave(job)
            self.packing.part(job)
        down = [j for j, at in homes.of.items() if not _works(at, view.pool)]
        self.next = [(time, gang) for time, gang in self.next if gang.job not in down]
        for job in down:
            homes.leave(job)
            self.packing.part(job)
            self._settle(job, view, homes)
        for job in view.waiting:
            if job not in homes.of and job not in view.arrived:
                self._settle(job, view, homes)

    def _settle(self, job: int, view: ClusterView, homes: Homes) -> None:
        if is_searched(job, view):
            self.searched[job] = None
        devices = homes.choose(view.jobs.demand(job), view.pool)
        if devices is not None:
            homes.settle(job, devices)

    def _drop(self, job: int, homes: Homes) -> None:
        """A job of a search ends early."""
        if job in homes.of:
            homes.leave(job)
        self.packing.part(job)
        self.searched.pop(job)
        self.next = [(time, gang) for time, gang in self.next if gang.job != job]

    def _keep_clock(self, now: float) -> None:
        """Slices go on one after another, also while nobody has to be woken at their ends.

        An end that is waited for is not missed, however late it is heard of.
        """
        if self.boundary == -math.inf:
            self.boundary = now + self.slice_length
        elif now > self.boundary + SLACK and not self.due:
            missed = math.ceil((now - self.boundary) / self.slice_length - SLACK)
            self.boundary += missed * self.slice_length

    def _turn(self, view: ClusterView, homes: Homes, lost: dict[int, str]) -> Allocation:
        """All devices are given anew, the longest wait first."""
        self.next = []
        pool = view.pool.copy()
        for gang in view.running.values():
            pool.give_back(gang)
        ranked = [job for job in view.waiting if job in homes.of]
        gangs = self._fit([*ranked, *(job for job in view.running if job in homes.of)], view, pool)
        if self.packs:
            rest = [job for job in (*ranked, *view.running) if job in homes.of and job not in gangs]
            self.packing.try_pairs(gangs, rest, homes.of, view)
        suspended = [job for job in view.running if job not in gangs and job not in lost]
        losing = [job for job in lost if job in view.running]
        vacated = {device for job in (*suspended, *losing) for device in view.running[job].devices}
        changed = [gang for job, gang in gangs.items() if view.running.get(job) != gang]
        start = self._at_once(changed, vacated, view)
        self.boundary = view.now + self.slice_length + (self.switch_time if self.next else 0.0)
        return Allocation(tuple(start), suspend=tuple(suspended))

    def _at_once(self, gangs: Iterable[Gang], vacated: Set[int], view: ClusterView) -> list[Gang]:
        """Those that need not wait until a job is suspended or resumed; the others come ``next``."""
        found = list[Gang]()
        for gang in gangs:
            resumes = view.attained.executions[gang.job] > 0 or not vacated.isdisjoint(gang.devices)
            if gang.job in view.running or not (resumes and self.switch_time):
                found.append(gang)
            else:
                self.next.append((view.now + self.switch_time, gang))
        return found

    def _fit(self, ranked: list[int], view: ClusterView, pool: Pool) -> dict[int, Gang]:
        """Gangs of jobs whose homes are free, in order; packed ones come together."""
        found: dict[int, Gang] = {}
        for job in ranked:
            if pool.total < 1:
                break
            if job in found:
                continue
            together = [self._gang(one, view) for one in self.packing.unit(job)]
            trial = pool if len(together) == 1 else pool.copy()
            if any(_takes(trial, gang) for gang in together[:1]) and all(
                _takes(trial, g) for g in together[1:]
            ):
                if trial is not pool:
                    for gang in together:
                        pool.take(gang)
                found.update({gang.job: gang for gang in together})
        return found

    def _gang(self, job: int, view: ClusterView) -> Gang:
        assert self.homes is not None
        devices = self.homes.of[job]
        hosts = view.pool.hosts_of(devices, view.jobs.demand(job))
        part = 0.5 if len(self.packing.unit(job)) > 1 else 1.0
        return Gang(job, devices, part, part, hosts)

    def _between(self, view: ClusterView, homes: Homes, lost: dict[int, str]) -> Allocation:
        """Within a slice: those whose turn it is start, free devices are filled, and jobs move to them."""
        pool = view.pool.copy()
        back = [job for job in list_grown(view) if job in homes.of and job not in lost]
        for job in back:
            pool.give_back(view.running[job])
            pool.take(self._gang(job, view))
        start = [gang for time, gang in self.next if view.now >= time - SLACK]
        self.next = [(time, gang) for time, gang in self.next if view.now < time - SLACK]
        for gang in (*start, *(gang for _, gang in self.next)):
            pool.take(gang)
        start += [self._gang(job, view) for job in back]
        taken = {gang.job for gang in (*start, *(gang for _, gang in self.next))}
        start += self._widened(view, taken, lost)
        waiting = [job for job in view.waiting if job in homes.of and job not in taken]
        if view.ended or lost or view.stopped or view.arrived:
            for job in waiting:
                if 0 not in homes.load:
                    break
                self._move(job, view, homes)
            start += self._brought_together(view, homes, pool)
        if self.empties and (view.ended or lost) and not view.waiting and not start and not self.next:
            start += self._empty_a_node(view, homes, lost)
        ready = [job for job in waiting if all(one in view.waiting for one in self.packing.unit(job))]
        start += self._at_once(self._fit(ready, view, pool).values(), frozenset(), view)
        return Allocation(tuple(start))

    def _lend(
        self, decision: Allocation, view: ClusterView, homes: Homes, lost: dict[int, str]
    ) -> Allocation:
        """Where everybody runs, idle devices go to those that can use them."""
        started = {gang.job for gang in decision.start}
        if self.next or decision.suspend or any(j not in started and j not in lost for j in view.waiting):
            return decision
        running = [job for job in {*view.running, *started} if job in homes.of]
        alone = [job for job in running if all(homes.load[device] == 1 for device in homes.of[job])]
        kept = [job for job in alone if len(self.packing.unit(job)) == 1]
        return lend(decision, view, kept, {device for devices in homes.of.values() for device in devices})

    def _widened(self, view: ClusterView, taken: set[int], lost: dict[int, str]) -> Iterator[Gang]:
        """Jobs whose partner has left have their devices alone again."""
        for job, gang in view.running.items():
            if gang.share < 1 and len(self.packing.unit(job)) == 1 and job not in lost:
                others = any(
                    one != job and set(other.devices) & set(gang.devices)
                    for one, other in view.running.items()
                )
                if not others and job not in taken:
                    yield Gang(job, gang.devices, hosts=gang.hosts)

    def _move(self, job: int, view: ClusterView, homes: Homes) -> None:
        """A job that shares its home moves to devices that are nobody's."""
        if all(homes.load[device] == 1 for device in homes.of[job]) or len(self.packing.unit(job)) > 1:
            return
        free = homes.free(view.jobs.demand(job), view.pool)
        if free is not None:
            homes.leave(job)
            homes.settle(job, free)

    def _brought_together(self, view: ClusterView, homes: Homes, pool: Pool) -> Iterator[Gang]:
        """Running jobs that lie on more nodes than they need, the largest first, move to one that is free."""
        by_node = view.pool.machines.by_node
        scattered = [
            job for job, gang in view.running.items() if len(by_node(gang.devices)) > 1 and job in homes.of
        ]
        for job in sorted(scattered, key=lambda one: (-view.jobs.gpus[one], one)):
            if (
                len(self.packing.unit(job)) > 1
                or not view.running[job].is_alone
                or view.running[job].size > view.jobs.gpus[job]
            ):
                continue
            before = homes.of[job]
            homes.leave(job)
            free = homes.free(view.jobs.demand(job), view.pool)
            better = free is not None and len(by_node(free)) < len(by_node(before))
            homes.settle(job, before if free is None or not better else free)
            if homes.of[job] == before:
                continue
            gang = self._gang(job, view)
            pool.give_back(view.running[job])
            if _takes(pool, gang):
                yield gang
            else:
                pool.take(view.running[job])
                homes.leave(job)
                homes.settle(job, before)

    def _empty_a_node(self, view: ClusterView, homes: Homes, lost: dict[int, str]) -> Iterator[Gang]:
        """Where nobody waits, the jobs of the least loaded node move to nodes that have others."""
        staying = [
            job
            for job, gang in view.running.items()
            if job not in lost and gang.is_alone and gang.devices == homes.of.get(job)
        ]
        busy = {device for gang in view.running.values() for device in gang.devices}
        before = vacate_least_loaded(staying, view, homes)
        gangs = [self._gang(job, view) for job in before]
        if any(busy.intersection(gang.devices) for gang in gangs):
            for job, devices in before.items():
                homes.leave(job)
                homes.settle(job, devices)
            return
        yield from gangs

    def _told(self, decision: Allocation, lost: dict[int, str], view: ClusterView) -> Allocation:
        stopped = tuple(job for job in lost if job in view.running)
        wake = [time for time, _ in self.next]
        started = {gang.job for gang in decision.start}
        waits = any(job not in started and job not in lost for job in view.waiting) or decision.suspend
        self.due = bool(waits or self.packing.partner or (self.stops_early and self.searched))
        if self.due:
            wake.append(self.boundary)
        after = [time for time in wake if time > view.now]
        return Allocation(
            decision.start, stopped, decision.suspend, tuple(lost.items()), min(after, default=None)
        )


def _works(devices: Devices, pool: Pool) -> bool:
    node_of = pool.machines.node_of
    return all(pool.capacity[node_of[device]] for device in devices)


def _takes(pool: Pool, gang: Gang) -> bool:
    """Take a gang's devices where they are free; whether they were."""
    if pool.lack(gang):
        return False
    pool.take(gang)
    return True
