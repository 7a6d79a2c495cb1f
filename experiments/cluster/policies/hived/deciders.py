"""Which job runs in which cells: guaranteed ones inside their virtual clusters, others on what is free."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from experiments.cluster.interface import Allocation, ClusterView, Demand, Devices, Gang, Machines
from experiments.cluster.policies.hived.cells import Cell, Chain, Level, chains_of
from experiments.cluster.policies.hived.virtual import (
    Quotas,
    VirtualCell,
    VirtualCluster,
    owners,
    reserved,
    unbind,
)
from experiments.workloads.jobs import OPPORTUNISTIC

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

    def allocate(self, view: ClusterView) -> Allocation:
        if not self.chains:
            self.open(view.pool.machines)
        self.down = view.down
        for job in (*view.ended, *view.stopped):
            self.release(job)
        rejected = [(job, why) for job in view.arrived if (why := self._refusal(job, view))]
        refused = dict(rejected)
        for job in (*view.arrived, *view.stopped):
            if job not in refused:
                self.waiting.setdefault(self._queue(job, view), {})[job] = None
        start: dict[int, Devices] = {}
        preempted: list[int] = []
        for tenant in sorted(self.clusters):
            self._serve(tenant, view, start, preempted)
        taken = {device for devices in start.values() for device in devices}
        evicted = [job for job, devices in self.guests.items() if not taken.isdisjoint(devices)]
        for job in evicted:
            del self.guests[job]
            self.waiting.setdefault(OPPORTUNISTIC, {})[job] = None
        self._fill(view, start)
        gangs = tuple(Gang(job, devices) for job, devices in start.items())
        return Allocation(gangs, (*preempted, *evicted), reject=tuple(rejected))

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

    def _bind(self, virtual: VirtualCell, suits: Callable[[Cell], bool]) -> bool:
        """Give a virtual cell a physical one that ``suits``; false where none that works is left."""
        chain = virtual.chain
        others = reserved(self.clusters.values(), chain)
        others[virtual.size] -= 1
        in_use = {device for devices in self.guests.values() for device in devices}
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
        mine = _priority(job, view)
        lower = [
            one
            for one, owner in self.placed.items()
            if owner == tenant and one in view.running and one not in start and _priority(one, view) < mine
        ]
        lower.sort(key=lambda one: (_priority(one, view), -one))
        for number in range(1, len(lower) + 1):
            victims = lower[:number]
            kept = [(one, list(self._cells_of(one, tenant))) for one in victims]
            for one in victims:
                self.release(one)
            devices = self._place(job, tenant, view)
            if devices is not None:
                preempted += victims
                self.waiting.setdefault(f"tenant {tenant}", {}).update(dict.fromkeys(victims))
                return devices
            self._restore(kept, tenant)
        return None

    def _cells_of(self, job: int, tenant: str) -> list[tuple[VirtualCell, Cell, Devices]]:
        cells = self.clusters[tenant].cells
        return [(one, one.bound, one.jobs[job]) for one in cells if job in one.jobs and one.bound is not None]

    def _restore(self, kept: list[tuple[int, list[tuple[VirtualCell, Cell, Devices]]]], tenant: str) -> None:
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
            if job not in self.placed and job not in self.guests:
                pool.give_back(gang)
        for job, devices in start.items():
            pool.take(Gang(job, devices))
        for job in list(queue):
            place = pool.place(job, Demand(view.jobs.gpus[job]), "pack")
            if place is not None:
                pool.take(place)
                start[job] = self.guests[job] = place.devices
                del queue[job]


def _priority(job: int, view: ClusterView) -> float:
    return float(view.jobs.column("priority")[job]) if view.jobs.tells("priority") else 0.0
