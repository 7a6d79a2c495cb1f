"""The cluster's cells as its tenants own them, and who runs in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from experiments.cluster.interface import Devices, Machines
from experiments.cluster.policies.hived.cells import Cell, Chain, Level, chains_of
from experiments.cluster.policies.hived.preemption import Preemptions
from experiments.cluster.policies.hived.virtual import (
    Quotas,
    VirtualCell,
    VirtualCluster,
    owners,
    reserved,
    unbind,
)

#: Jobs, and what each had in which cells.
Kept = Sequence[tuple[int, Sequence[tuple[VirtualCell, Cell, Devices]]]]
#: Numbers of nodes; ``None``: any.
Nodes = frozenset[int] | None
#: The virtual cluster of everybody where nobody has one of its own.
EVERYBODY = ""


@dataclass
class Cluster:
    """The owners of a cluster's cells, and who runs in them.

    ``placed`` are the guaranteed jobs that have cells, each with its tenant; ``guests`` are the opportunistic
    ones that run.
    """

    quotas: Quotas
    chains: dict[Level, Chain] = field(default_factory=dict)
    clusters: dict[str, VirtualCluster] = field(default_factory=dict)
    placed: dict[int, str] = field(default_factory=dict)
    guests: dict[int, Devices] = field(default_factory=dict)
    machines: Machines = field(init=False)
    down: frozenset[int] = frozenset()
    by_type: bool = False
    preemptions: Preemptions = field(default_factory=Preemptions)

    def open(self, machines: Machines, knob: str = "virtual_clusters") -> None:
        """Divide the cluster among its owners; ``Infeasible`` names the ``knob`` that asks for too much."""
        self.machines = machines
        self.by_type = any(level.device for cells in self.quotas.values() for level in cells)
        self.chains = chains_of(machines, by_type=self.by_type)
        whole = {node: len(chain.nodes) for node, chain in self.chains.items()}
        self.clusters = owners(self.quotas or {EVERYBODY: whole}, self.chains, knob)

    def reconfigure(self, quotas: Quotas) -> list[int]:
        """Divide the cluster anew; jobs that no longer fit into cells of their tenants become guests.

        Jobs that wait for their victims lose their cells and are returned.
        """
        canceled = list(self.preemptions.reserving)
        for job in canceled:
            self.release(job)
        kept = {
            job: (tenant, [devices for _, _, devices in self.cells_of(job, tenant)])
            for job, tenant in self.placed.items()
        }
        self.quotas, self.placed = quotas, {}
        self.open(self.machines)
        for job, (tenant, parts) in kept.items():
            if tenant not in self.clusters or not self.adopt(job, parts, tenant):
                self.guests[job] = tuple(sorted(device for part in parts for device in part))
        return canceled

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

    def place(
        self, job: int, gpus: int, tenant: str, types: Sequence[str] = (), nodes: Nodes = None
    ) -> Devices | None:
        """Run a job in the cells of ``tenant``; ``None`` where they are in use, or on nodes that are down.

        ``types`` are those of devices that will do (none: any), ``nodes`` where it may go (None: anywhere).
        """
        cluster = self.clusters[tenant]

        def suits(cell: Cell) -> bool:
            at = self.machines.node_of[cell.first]
            return (not types or self.machines[at].device in types) and (nodes is None or at in nodes)

        found = cluster.choose(gpus, lambda cell: self._bind(cell, suits), suits)
        if found is None:
            return None
        for place, devices in found.items():
            cluster.cells[place].jobs[job] = devices
        self.placed[job] = tenant
        return tuple(sorted(device for devices in found.values() for device in devices))

    def most_on(self, nodes: frozenset[int], tenant: str, types: Sequence[str] = ()) -> int:
        """How many GPUs on ``nodes`` the cells of ``tenant`` can have at most."""
        cells, total = self.clusters[tenant].cells, 0
        for chain in self.chains.values():
            if types and chain.device not in types:
                continue
            firsts = [first for first in chain.nodes if self.machines.node_of[first] in nodes]
            part, wanted = Chain(chain.levels, firsts), dict[int, int]()
            for size in sorted((cell.size for cell in cells if cell.chain is chain), reverse=True):
                more = {**wanted, size: wanted.get(size, 0) + 1}
                wanted = more if part.lack(more) is None else wanted
            total += sum(size * count for size, count in wanted.items())
        return total

    def adopt(self, job: int, parts: Sequence[Devices], tenant: str) -> bool:
        """Give a job that runs already cells of ``tenant`` around its devices; false where they are not free.

        Each of ``parts`` needs a cell around it, and all that is owned and unused must be left.
        """
        owner = self.clusters.get(tenant, VirtualCluster())
        for part in parts:
            cell = next((one for one in owner.cells if self._holds(one, part)), None)
            if cell is None:
                self.release(job)
                return False
            cell.jobs[job] = tuple(sorted((*cell.jobs.get(job, ()), *part)))
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

    def cells_of(self, job: int, tenant: str) -> list[tuple[VirtualCell, Cell, Devices]]:
        cells = self.clusters[tenant].cells
        return [(one, one.bound, one.jobs[job]) for one in cells if job in one.jobs and one.bound is not None]

    def restore(self, kept: Kept, tenant: str) -> None:
        """Bind the cells of jobs again where they were."""
        for job, cells in kept:
            for virtual, cell, devices in cells:
                if virtual.bound is None:
                    virtual.chain.claim(cell)
                    virtual.bound = cell
                virtual.jobs[job] = devices
            self.placed[job] = tenant
