"""Which job runs in which cells: guaranteed ones inside their virtual clusters, others on what is free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from experiments.cluster.interface import Allocation, ClusterView, Demand, Devices, Gang, Machines, Pool
from experiments.cluster.policies.hived.cluster import EVERYBODY, Cluster, Kept, Nodes
from experiments.cluster.policies.hived.preemption import Leaver
from experiments.cluster.policies.hived.virtual import Quotas
from experiments.workloads.jobs import OPPORTUNISTIC


class Change(NamedTuple):
    """The quotas that hold from ``at`` (s) on."""

    at: float
    quotas: Quotas


@dataclass
class Scheduler:
    """Jobs that wait for cells, by whose they wait for, and the ``grace`` (s) of those that are preempted."""

    cluster: Cluster
    grace: float = 0.0
    ignore_suggested: bool = False
    change: Change | None = None
    waiting: dict[str, dict[int, None]] = field(default_factory=dict)

    def allocate(self, view: ClusterView) -> Allocation:
        if not self.cluster.chains:
            self._open(view.pool.machines)
        self.cluster.down = view.down
        for job in (*view.ended, *view.stopped):
            self.cluster.release(job)
        rejected = self._reconfigure(view)
        rejected += [(job, why) for job in view.arrived if (why := self._refusal(job, view))]
        refused = dict(rejected)
        self._cancel_on_failed_nodes(view)
        for job in (*view.arrived, *view.stopped):
            if job not in refused:
                self._wait(job, view)
        start: dict[int, Devices] = {}
        preempted: list[int] = []
        self._finish_preemptions(view, start, preempted)
        for tenant in sorted(self.cluster.clusters):
            self._serve(tenant, view, start, preempted)
        if self.grace:
            self._ask_to_leave(view, start, preempted)
        evicted = self._evict(start, view)
        gone = (*preempted, *evicted)
        self._fill(view, start, frozenset(gone))
        gangs = tuple(Gang(job, devices) for job, devices in start.items())
        times = (self.cluster.preemptions.next_due, self.change.at if self.change else None)
        wake_at = min((time for time in times if time is not None), default=None)
        return Allocation(gangs, gone, reject=tuple(rejected), wake_at=wake_at)

    def _open(self, machines: Machines) -> None:
        if self.change:
            Cluster(self.change.quotas).open(machines, "new_virtual_clusters")
        self.cluster.open(machines)

    def _reconfigure(self, view: ClusterView) -> list[tuple[int, str]]:
        """Change the quotas when it is time, and refuse waiting jobs that can never run now.

        Those that have run already become opportunistic instead.
        """
        if self.change is None or view.now < self.change.at:
            return []
        quotas, self.change = self.change.quotas, None
        jobs = self.cluster.reconfigure(quotas)
        jobs += [job for queue in self.waiting.values() for job in queue]
        self.waiting = {}
        refused = []
        for job in sorted(jobs):
            why = self._refusal(job, view)
            if why and not view.attained.executions[job]:
                refused.append((job, why))
            else:
                self._wait(job, view)
        return refused

    def _wait(self, job: int, view: ClusterView) -> None:
        is_orphan = bool(view.attained.executions[job] and self._refusal(job, view))
        queue = OPPORTUNISTIC if is_orphan else self._queue(job, view)
        self.waiting.setdefault(queue, {})[job] = None

    def _evict(self, start: Mapping[int, Devices], view: ClusterView) -> list[int]:
        """Stop opportunistic jobs on devices that start with another job now."""
        taken = {device for devices in start.values() for device in devices}
        evicted = [job for job, devices in self.cluster.guests.items() if not taken.isdisjoint(devices)]
        for job in evicted:
            del self.cluster.guests[job]
            self._wait(job, view)
        return evicted

    def _cancel_on_failed_nodes(self, view: ClusterView) -> None:
        node_of = self.cluster.machines.node_of
        for job, devices in list(self.cluster.preemptions.reserving.items()):
            if not self.cluster.down.isdisjoint(node_of[device] for device in devices):
                self._cancel(job, view)

    def _cancel(self, job: int, view: ClusterView) -> None:
        """Let a job that waits for its victims wait for cells again."""
        self.cluster.release(job)
        self._wait(job, view)

    def _finish_preemptions(self, view: ClusterView, start: dict[int, Devices], preempted: list[int]) -> None:
        """Stop victims whose time is over, and start the jobs whose victims are gone."""
        for job in self.cluster.preemptions.dues(view.now):
            self.cluster.release(job)
            self._wait(job, view)
            preempted.append(job)
        stay = {job: gang for job, gang in view.running.items() if job not in preempted}
        for job, devices in self.cluster.preemptions.ready(stay):
            del self.cluster.preemptions.reserving[job]
            start[job] = devices

    def _ask_to_leave(self, view: ClusterView, start: dict[int, Devices], preempted: list[int]) -> None:
        """Jobs that were given devices in use reserve them, and whoever is there has ``grace`` to leave.

        Victims whose preemptors were canceled meanwhile stay, where their cells are still to be had.
        """
        stay = {job: gang for job, gang in view.running.items() if job not in preempted}
        used = {device for gang in stay.values() for device in gang.devices}
        for job in [job for job, devices in start.items() if not used.isdisjoint(devices)]:
            self.cluster.preemptions.reserving[job] = start.pop(job)
        claims = self.cluster.preemptions.claims()
        for job in self.cluster.guests:
            if not claims.isdisjoint(stay[job].devices):
                self.cluster.preemptions.leaving.setdefault(job, Leaver(view.now + self.grace))
        for job in self.cluster.preemptions.list_spared(stay):
            leaver = self.cluster.preemptions.leaving.pop(job)
            if job not in self.cluster.guests and not self.cluster.adopt(job, leaver.parts, leaver.tenant):
                self.cluster.preemptions.leaving[job] = leaver

    def _queue(self, job: int, view: ClusterView) -> str:
        if view.jobs.tells("class") and view.jobs.column("class")[job] == OPPORTUNISTIC:
            return OPPORTUNISTIC
        return f"tenant {view.jobs.tenant[job] if self.cluster.quotas else EVERYBODY}"

    def _refusal(self, job: int, view: ClusterView) -> str:
        """Why a job can never run; empty when it can."""
        if self._queue(job, view) == OPPORTUNISTIC:
            return self._refusal_of_guest(job, view)
        tenant = view.jobs.tenant[job] if self.cluster.quotas else EVERYBODY
        if tenant not in self.cluster.clusters:
            return f"{tenant or 'its tenant'} has no virtual cluster"
        gpus, types = view.jobs.gpus[job], self._types(job, view)
        has = self.cluster.clusters[tenant].gpus(types)
        if has < gpus:
            of_type = f" of type {' or '.join(types)}" if types else ""
            return f"wants {gpus} GPUs{of_type}, and the cells of {tenant} have {has}"
        nodes = self._suggested_nodes(job, view)
        if nodes is not None and not self.ignore_suggested:
            return self._lack(gpus, self.cluster.most_on(nodes, tenant, types), f"the cells of {tenant} have")
        return ""

    def _refusal_of_guest(self, job: int, view: ClusterView) -> str:
        nodes = self._suggested_nodes(job, view)
        if nodes is None or self.ignore_suggested:
            return ""
        has = sum(self.cluster.machines.sizes[node] for node in nodes)
        return self._lack(view.jobs.gpus[job], has, "there are")

    @staticmethod
    def _lack(gpus: int, has: int, whose: str) -> str:
        return "" if has >= gpus else f"wants {gpus} GPUs, and on its suggested nodes {whose} {has}"

    def _suggested_nodes(self, job: int, view: ClusterView) -> Nodes:
        """The nodes that a job may go to."""
        names = view.jobs.column("suggested_nodes")[job] if view.jobs.tells("suggested_nodes") else ""
        if not names:
            return None
        wanted = set(names.split("|"))
        return frozenset(at for at, node in enumerate(self.cluster.machines) if node.name in wanted)

    def _types(self, job: int, view: ClusterView) -> tuple[str, ...]:
        """Types of devices that a job asks for, where tenants own cells of types."""
        return view.jobs.demand(job).types if self.cluster.by_type else ()

    def _place(self, job: int, tenant: str, view: ClusterView) -> Devices | None:
        """Cells on nodes that are suggested, and on others where suggestions are ignored."""
        gpus, types, nodes = view.jobs.gpus[job], self._types(job, view), self._suggested_nodes(job, view)
        devices = self.cluster.place(job, gpus, tenant, types, nodes)
        if devices is None and nodes is not None and self.ignore_suggested:
            return self.cluster.place(job, gpus, tenant, types)
        return devices

    def _serve(self, tenant: str, view: ClusterView, start: dict[int, Devices], preempted: list[int]) -> None:
        """Start a tenant's jobs, the highest priority first.

        Nothing passes one that does not fit, unless that waits for its suggested nodes.
        """
        queue = self.waiting.get(f"tenant {tenant}", {})
        for job in sorted(queue, key=lambda one: (-_priority(one, view), one)):
            devices = self._place(job, tenant, view)
            if devices is None:
                devices = self._preempt_for(job, tenant, view, start, preempted)
            if devices is None and self._insists(job, view):
                continue
            if devices is None:
                return
            start[job] = devices
            del queue[job]

    def _insists(self, job: int, view: ClusterView) -> bool:
        return not self.ignore_suggested and self._suggested_nodes(job, view) is not None

    def _preempt_for(
        self, job: int, tenant: str, view: ClusterView, start: dict[int, Devices], preempted: list[int]
    ) -> Devices | None:
        """Take the cells of jobs of lower priority, the lowest and latest first, if that is enough."""
        lower = self._lower(job, tenant, view, start)
        for number in range(1, len(lower) + 1):
            victims = lower[:number]
            kept = [(one, list(self.cluster.cells_of(one, tenant))) for one in victims]
            claims = dict(self.cluster.preemptions.reserving)
            for one in victims:
                self.cluster.release(one)
            devices = self._place(job, tenant, view)
            if devices is not None:
                self._dismiss(kept, tenant, view, preempted)
                return devices
            self.cluster.preemptions.reserving = claims
            self.cluster.restore(kept, tenant)
        return None

    def _lower(self, job: int, tenant: str, view: ClusterView, start: Mapping[int, Devices]) -> list[int]:
        """Jobs of lower priority in a tenant's cells, the lowest and latest first."""
        mine, reserving = _priority(job, view), self.cluster.preemptions.reserving
        lower = [
            one
            for one, owner in self.cluster.placed.items()
            if owner == tenant
            and (one in view.running or one in reserving)
            and one not in start
            and _priority(one, view) < mine
        ]
        return sorted(lower, key=lambda one: (_priority(one, view), -one))

    def _dismiss(self, kept: Kept, tenant: str, view: ClusterView, preempted: list[int]) -> None:
        """Victims stop now or have ``grace`` to leave; those that still wait for theirs are canceled."""
        for victim, cells in kept:
            if self.grace and victim in view.running and victim not in preempted:
                parts = tuple(devices for _, _, devices in cells)
                self.cluster.preemptions.leaving[victim] = Leaver(view.now + self.grace, tenant, parts)
                continue
            if victim in view.running and victim not in preempted:
                preempted.append(victim)
            self.waiting.setdefault(f"tenant {tenant}", {})[victim] = None

    def _fill(self, view: ClusterView, start: dict[int, Devices], gone: frozenset[int]) -> None:
        """Start opportunistic jobs on devices that nobody has, in order, packed on few nodes."""
        queue = self.waiting.get(OPPORTUNISTIC, {})
        if not queue:
            return
        pool = view.pool.copy()
        for job, gang in view.running.items():
            if job in gone:
                pool.give_back(gang)
        for job, devices in start.items():
            pool.take(Gang(job, devices))
        for job, devices in self.cluster.preemptions.reserving.items():
            unused = tuple(device for device in devices if pool.left_of(device) == (1.0, 1.0))
            pool.take(Gang(job, unused))
        for job in list(queue):
            place = self._place_guest(job, pool, view)
            if place is not None:
                pool.take(place)
                start[job] = self.cluster.guests[job] = place.devices
                del queue[job]

    def _place_guest(self, job: int, pool: Pool, view: ClusterView) -> Gang | None:
        """Free devices for an opportunistic job, on the nodes that are suggested first."""
        demand, nodes = Demand(view.jobs.gpus[job]), self._suggested_nodes(job, view)
        if nodes is not None:
            part = pool.copy()
            for node in set(range(len(pool.machines))) - nodes:
                part.close(node)
            gang = part.place(job, demand, "pack")
            if gang is not None or not self.ignore_suggested:
                return gang
        return pool.place(job, demand, "pack")


def _priority(job: int, view: ClusterView) -> float:
    return float(view.jobs.column("priority")[job]) if view.jobs.tells("priority") else 0.0
