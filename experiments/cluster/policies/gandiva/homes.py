"""Which devices each job calls its own, alone or in turns with others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from experiments.cluster.interface import Demand, Devices, Machines, Pool


@dataclass
class Homes:
    """``of`` are the devices of each unfinished job; ``load`` counts the jobs of each device.

    ``affinity`` counts the jobs of each node by the GPUs that they want.
    """

    machines: Machines
    of: dict[int, Devices] = field(default_factory=dict)
    load: list[int] = field(default_factory=list)
    affinity: list[dict[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.load = [0] * self.machines.devices
        self.affinity = [{} for _ in self.machines]

    def settle(self, job: int, devices: Devices) -> None:
        """Give ``job`` its devices."""
        self.of[job] = devices
        self._count(devices, +1)

    def leave(self, job: int) -> None:
        """Take them from a job that has ended, or has to move."""
        self._count(self.of.pop(job), -1)

    def _count(self, devices: Devices, change: int) -> None:
        for device in devices:
            self.load[device] += change
        for node, _ in self.machines.by_node(devices):
            jobs = self.affinity[node]
            jobs[len(devices)] = jobs.get(len(devices), 0) + change
            if not jobs[len(devices)]:
                del jobs[len(devices)]

    def choose(self, demand: Demand, pool: Pool) -> Devices | None:
        """Devices for a job: free ones by affinity, else those shared by the fewest, of like jobs first."""
        return self.free(demand, pool) or self._shared(demand, pool)

    def free(self, demand: Demand, pool: Pool) -> Devices | None:
        """Devices that are nobody's, on one node if there is one."""
        room = {node: self._nobodys(node, demand, pool) for node in range(len(self.machines))}
        order = sorted(room, key=lambda node: (self._distance(node, demand.gpus), len(room[node]), node))
        for node in order:
            if len(room[node]) >= demand.gpus:
                return tuple(room[node][: demand.gpus])
        order.sort(key=lambda node: (self._distance(node, demand.gpus), -len(room[node]), node))
        return _first([device for node in order for device in room[node]], demand.gpus)

    def beside(self, demand: Demand, pool: Pool, without: int) -> Devices | None:
        """Devices that are nobody's on one node that has jobs already, other than ``without``."""
        nodes = [node for node, jobs in enumerate(self.affinity) if jobs and node != without]
        room = {node: self._nobodys(node, demand, pool) for node in nodes}
        enough = [node for node in nodes if len(room[node]) >= demand.gpus]
        if not enough:
            return None
        best = min(enough, key=lambda node: (self._distance(node, demand.gpus), len(room[node]), node))
        return tuple(room[best][: demand.gpus])

    def _nobodys(self, node: int, demand: Demand, pool: Pool) -> list[int]:
        return [device for device in self._usable(node, demand, pool) if not self.load[device]]

    def _distance(self, node: int, gpus: int) -> int:
        """0 for a node with jobs of as many GPUs, 1 for one with none, 2 for others."""
        return 0 if gpus in self.affinity[node] else 2 if self.affinity[node] else 1

    def _shared(self, demand: Demand, pool: Pool) -> Devices | None:
        """The devices of the job with as many GPUs that fewest share; else the least loaded ones."""
        alike = {
            devices
            for devices in self.of.values()
            if len(devices) == demand.gpus and self._all_usable(devices, demand, pool)
        }
        if alike:
            return min(alike, key=lambda devices: (max(self.load[one] for one in devices), devices))
        nodes = [self._usable(node, demand, pool) for node in range(len(self.machines))]
        for devices in nodes:
            devices.sort(key=lambda device: (self.load[device], device))
        enough = [devices[: demand.gpus] for devices in nodes if len(devices) >= demand.gpus]
        if enough:
            best = min(enough, key=lambda devices: (sum(self.load[one] for one in devices), devices))
            return tuple(sorted(best))
        nodes.sort(key=lambda devices: (-len(devices), sum(self.load[one] for one in devices)))
        return _first([device for devices in nodes for device in devices], demand.gpus)

    def _all_usable(self, devices: Devices, demand: Demand, pool: Pool) -> bool:
        nodes = {node for node, _ in self.machines.by_node(devices)}
        usable = {device for node in nodes for device in self._usable(node, demand, pool)}
        return usable.issuperset(devices)

    def _usable(self, node: int, demand: Demand, pool: Pool) -> list[int]:
        """The devices of a node in working order, of a type that will do, as many as its host can feed."""
        machine = self.machines[node]
        if not pool.capacity[node] or (demand.types and machine.device not in demand.types):
            return []
        feeds = float(machine.gpus)
        for wanted, has in ((demand.cpus, machine.cpus), (demand.memory, machine.memory)):
            if wanted:
                feeds = min(feeds, has / (wanted / demand.gpus) + 1e-9)
        return list(self.machines.devices_of(node))[: int(feeds)]


def _first(devices: Sequence[int], count: int) -> Devices | None:
    return tuple(sorted(devices[:count])) if len(devices) >= count else None
