"""Which job runs in which cells: guaranteed ones inside their virtual clusters, others on what is free."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from experiments.cluster.interface import Allocation, ClusterView, Demand, Devices, Gang, Machines
from experiments.cluster.policies.hived.cells import Cell, Chain, Level, chains_of
from experiments.cluster.policies.hived.preemption import Leaver, Preemptions
from experiments.cluster.policies.hived.virtual import (
    Quotas,
    VirtualCell,
    VirtualCluster,
    owners,
    reserved,
    unbind,
)
from experiments.workloads.jobs import OPPORTUNISTIC

#: Jobs, and what each had in which cells.
Kept = Sequence[tuple[int, Sequence[tuple[VirtualCell, Cell, Devices]]]]
#: The virtual cluster of everybody where nobody has one of its own.
EVERYBODY = ""


@dataclass
class Cluster:
    """The owners of a cluster's cells, and who runs in them.

    ``placed`` are the guaranteed jobs that run, each with its tenant; ``guests`` are the opportunistic ones.
    """

    quotas: Quotas
    chains: dict[Level, Chain] = field(default_factory=dict)
    clusters: dict[str, VirtualCluster] = field(default_factory=dict)
    placed: dict[int, str] = field(default_factory=dict)
    guests: dict[int, Devices] = field(default_factory=dict)
    machines: Machines = field(init=False)
    waiting: dict[str, dict[int, None]] = field(default_factory=dict)
    down: frozenset[int] = frozenset()
    by_type: bool = False
    grace: float = 0.0
    preemptions: Preemptions = field(default_factory=Preemptions)

    def allocate(self, view: ClusterView) -> Allocation:
        if not self.chains:
            self.open(view.pool.machines)
        self.down = view.down
        for job in (*view.ended, *view.stopped):
            self.release(job)
        rejected = [(job, why) for job in view.arrived if (why := self._refusal(job, view))]
        refused = dict(rejected)
        self._cancel_on_failed_nodes(view)
        for job in (*view.arrived, *view.stopped):
            if job not in refused:
                self._wait(job, view)
        start: dict[int, Devices] = {}
        preempted: list[int] = []
        self._finish_preemptions(view, start, preempted)
        for tenant in sorted(self.clusters):
            self._serve(tenant, view, start, preempted)
        if self.grace:
            self._ask_to_leave(view, start, preempted)
        evicted = self._evict(start)
        self._fill(view, start)
        gangs = tuple(Gang(job, devices) for job, devices in start.items())
        wake_at = self.preemptions.next_due
        return Allocation(gangs, (*preempted, *evicted), reject=tuple(rejected), wake_at=wake_at)

    def _wait(self, job: int, view: ClusterView) -> None:
        self.waiting.setdefault(self._queue(job, view), {})[job] = None

    def _evict(self, start: Mapping[int, Devices]) -> list[int]:
        """Stop opportunistic jobs on devices that start with another job now."""
        taken = {device for devices in start.values() for device in devices}
        evicted = [job for job, devices in self.guests.items() if not taken.isdisjoint(devices)]
        for job in evicted:
            del self.guests[job]
            self.waiting.setdefault(OPPORTUNISTIC, {})[job] = None
        return evicted

    def _cancel_on_failed_nodes(self, view: ClusterView) -> None:
        node_of = self.machines.node_of
        for job, devices in list(self.preemptions.reserving.items()):
            if not self.down.isdisjoint(node_of[device] for device in devices):
                self._cancel(job, view)

    def _cancel(self, job: int, view: ClusterView) -> None:
        """Let a job that waits for its victims wait for cells again."""
        self.release(job)
        self._wait(job, view)

    def _finish_preemptions(self, view: ClusterView, start: dict[int, Devices], preempted: list[int]) -> None:
        """Stop victims whose time is over, and start the jobs whose victims are gone."""
        for job in self.preemptions.dues(view.now):
            self.release(job)
            self._wait(job, view)
            preempted.append(job)
        stay = {job: gang for job, gang in view.running.items() if job not in preempted}
        for job, devices in self.preemptions.ready(stay):
            del self.preemptions.reserving[job]
            start[job] = devices

    def _ask_to_leave(self, view: ClusterView, start: dict[int, Devices], preempted: list[int]) -> None:
        """Jobs that were given devices in use reserve them, and whoever is there has ``grace`` to leave.

        Victims whose preemptors were canceled meanwhile stay, where their cells are still to be had.
        """
        stay = {job: gang for job, gang in view.running.items() if job not in preempted}
        used = {device for gang in stay.values() for device in gang.devices}
        for job in [job for job, devices in start.items() if not used.isdisjoint(devices)]:
            self.preemptions.reserving[job] = start.pop(job)
        claims = self.preemptions.claims()
        for job in self.guests:
            if not claims.isdisjoint(stay[job].devices):
                self.preemptions.leaving.setdefault(job, Leaver(view.now + self.grace))
        for job in self.preemptions.spared(stay):
            leaver = self.preemptions.leaving[job]
            if job in self.guests or self.adopt(job, leaver.parts, leaver.tenant):
                del self.preemptions.leaving[job]

    def open(self, machines: Machines) -> None:
        """Divide the cluster among its owners."""
        self.machines = machines
        self.by_type = any(level.device for cells in self.quotas.values() for level in cells)
        self.chains = chains_of(machines, by_type=self.by_type)
        whole = {node: len(chain.nodes) for node, chain in self.chains.items()}
        self.clusters = owners(self.quotas or {EVERYBODY: whole}, self.chains)

    def release(self, job: int) -> None:
        """Take a job out of its cells, and unbind those that nobody uses any more."""
        self.guests.pop(job, None)
        self.preemptions.reserving.pop(job, None)
        self.preemptions.leaving.pop(job, None)
        tenant = self.placed.pop(job, None)
        if tenant is None:
            return
        for cell in self.clusters[tenant].cells:
            if cell.jobs.pop(job, None) is not None and not cell.jobs:
                unbind(cell)

    def place(self, job: int, gpus: int, tenant: str, types: Sequence[str] = ()) -> Devices | None:
        """Run a job in the cells of ``tenant``; ``None`` where they are in use, or on nodes that are down.

        ``types`` are those of devices that will do (none: any).
        """
        cluster = self.clusters[tenant]

        def suits(cell: Cell) -> bool:
            return not types or self.machines.type_of(cell.first) in types

        found = cluster.choose(gpus, lambda cell: self._bind(cell, suits), suits)
        if found is None:
            return None
        for place, devices in found.items():
            cluster.cells[place].jobs[job] = devices
        self.placed[job] = tenant
        return tuple(sorted(device for devices in found.values() for device in devices))

    def adopt(self, job: int, parts: Sequence[Devices], tenant: str) -> bool:
        """Give a job that runs already cells of ``tenant`` around its devices; false where they are not free.

        Each of ``parts`` needs a cell around it, and all that is owned and unused must be left.
        """
        for part in parts:
            cell = next((one for one in self.clusters[tenant].cells if self._holds(one, part)), None)
            if cell is None:
                self.release(job)
                return False
            cell.jobs[job] = part
            self.placed[job] = tenant
        return True

    def _holds(self, virtual: VirtualCell, part: Devices) -> bool:
        """Whether a virtual cell has free ``part``; an unused one is bound there if it can be."""
        if virtual.bound is not None:
            return virtual.free().issuperset(part)
        cell = virtual.chain.cell_around(part, virtual.size)
        if cell is None or not virtual.chain.is_free(cell):
            return False
        virtual.chain.claim(cell)
        virtual.bound = cell
        if virtual.chain.lack(reserved(self.clusters.values(), virtual.chain)) is None:
            return True
        unbind(virtual)
        return False

    def _bind(self, virtual: VirtualCell, suits: Callable[[Cell], bool]) -> bool:
        """Give a virtual cell a physical one that ``suits``; false where none that works is left."""
        chain = virtual.chain
        others = reserved(self.clusters.values(), chain)
        others[virtual.size] -= 1
        in_use = {device for devices in self.guests.values() for device in devices}
        in_use |= {
            device for one in self.preemptions.leaving.values() for part in one.parts for device in part
        }
        virtual.bound = chain.allocate(
            virtual.size,
            others,
            lambda cell: self._works(cell) and suits(cell),
            lambda cell: len(in_use.intersection(cell.devices)),
        )
        return virtual.bound is not None

    def _works(self, cell: Cell) -> bool:
        return self.machines.node_of[cell.first] not in self.down

    def _queue(self, job: int, view: ClusterView) -> str:
        if view.jobs.tells("class") and view.jobs.column("class")[job] == OPPORTUNISTIC:
            return OPPORTUNISTIC
        return f"tenant {view.jobs.tenant[job] if self.quotas else EVERYBODY}"

    def _refusal(self, job: int, view: ClusterView) -> str:
        """Why a guaranteed job can never run; empty when it can."""
        if self._queue(job, view) == OPPORTUNISTIC:
            return ""
        tenant = view.jobs.tenant[job] if self.quotas else EVERYBODY
        if tenant not in self.clusters:
            return f"{tenant or 'its tenant'} has no virtual cluster"
        gpus, types = view.jobs.gpus[job], self._types(job, view)
        has = self.clusters[tenant].gpus(types)
        if has < gpus:
            of_type = f" of type {' or '.join(types)}" if types else ""
            return f"wants {gpus} GPUs{of_type}, and the cells of {tenant} have {has}"
        return ""

    def _types(self, job: int, view: ClusterView) -> tuple[str, ...]:
        """Types of devices that a job asks for, where tenants own cells of types."""
        return view.jobs.demand(job).types if self.by_type else ()

    def _place(self, job: int, tenant: str, view: ClusterView) -> Devices | None:
        return self.place(job, view.jobs.gpus[job], tenant, self._types(job, view))

    def _serve(self, tenant: str, view: ClusterView, start: dict[int, Devices], preempted: list[int]) -> None:
        """Start a tenant's jobs, the highest priority first; nothing passes one that does not fit."""
        queue = self.waiting.get(f"tenant {tenant}", {})
        for job in sorted(queue, key=lambda one: (-_priority(one, view), one)):
            devices = self._place(job, tenant, view)
            if devices is None:
                devices = self._preempt_for(job, tenant, view, start, preempted)
            if devices is None:
                return
            start[job] = devices
            del queue[job]

    def _preempt_for(
        self, job: int, tenant: str, view: ClusterView, start: dict[int, Devices], preempted: list[int]
    ) -> Devices | None:
        """Take the cells of jobs of lower priority, the lowest and latest first, if that is enough."""
        lower = self._lower(job, tenant, view, start)
        for number in range(1, len(lower) + 1):
            victims = lower[:number]
            kept = [(one, list(self._cells_of(one, tenant))) for one in victims]
            claims = dict(self.preemptions.reserving)
            for one in victims:
                self.release(one)
            devices = self._place(job, tenant, view)
            if devices is not None:
                self._dismiss(kept, tenant, view, preempted)
                return devices
            self.preemptions.reserving = claims
            self._restore(kept, tenant)
        return None

    def _lower(self, job: int, tenant: str, view: ClusterView, start: Mapping[int, Devices]) -> list[int]:
        """Jobs of lower priority in a tenant's cells, the lowest and latest first."""
        mine, reserving = _priority(job, view), self.preemptions.reserving
        lower = [
            one
            for one, owner in self.placed.items()
            if owner == tenant
            and (one in view.running or one in reserving)
            and one not in start
            and _priority(one, view) < mine
        ]
        return sorted(lower, key=lambda one: (_priority(one, view), -one))

    def _dismiss(self, kept: Kept, tenant: str, view: ClusterView, preempted: list[int]) -> None:
        """Victims stop now or have ``grace`` to leave; those that still wait for theirs are canceled."""
        for victim, cells in kept:
            if self.grace and victim in view.running:
                parts = tuple(devices for _, _, devices in cells)
                self.preemptions.leaving[victim] = Leaver(view.now + self.grace, tenant, parts)
                continue
            if victim in view.running:
                preempted.append(victim)
            self.waiting.setdefault(f"tenant {tenant}", {})[victim] = None

    def _cells_of(self, job: int, tenant: str) -> list[tuple[VirtualCell, Cell, Devices]]:
        cells = self.clusters[tenant].cells
        return [(one, one.bound, one.jobs[job]) for one in cells if job in one.jobs and one.bound is not None]

    def _restore(self, kept: Kept, tenant: str) -> None:
        """Bind the cells of jobs again where they were."""
        for job, cells in kept:
            for virtual, cell, devices in cells:
                if virtual.bound is None:
                    virtual.chain.claim(cell)
                    virtual.bound = cell
                virtual.jobs[job] = devices
            self.placed[job] = tenant

    def _fill(self, view: ClusterView, start: dict[int, Devices]) -> None:
        """Start opportunistic jobs on devices that nobody has, in order, packed on few nodes."""
        queue = self.waiting.get(OPPORTUNISTIC, {})
        if not queue:
            return
        pool = view.pool.copy()
        for job, gang in view.running.items():
            if job not in self.placed and job not in self.guests and job not in self.preemptions.leaving:
                pool.give_back(gang)
        for job, devices in start.items():
            pool.take(Gang(job, devices))
        for job, devices in self.preemptions.reserving.items():
            unused = tuple(device for device in devices if pool.left_of(device) == (1.0, 1.0))
            pool.take(Gang(job, unused))
        for job in list(queue):
            place = pool.place(job, Demand(view.jobs.gpus[job]), "pack")
            if place is not None:
                pool.take(place)
                start[job] = self.guests[job] = place.devices
                del queue[job]


def _priority(job: int, view: ClusterView) -> float:
    return float(view.jobs.column("priority")[job]) if view.jobs.tells("priority") else 0.0
