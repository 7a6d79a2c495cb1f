"""What servers have left while a round is planned, and where a job's GPUs go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from experiments.cluster.interface import Machines, Pool
from experiments.cluster.policies.synergy.profiling import Vector

#: Sums of parts are not exact.
SLACK = 1e-9
#: GPUs of a job by server.
Spread = Mapping[int, int]


@dataclass
class Server:
    """One node: what is left of it, and the jobs on it with their GPUs."""

    node: int
    gpus: int
    cpus: float
    memory: float
    jobs: dict[int, int] = field(default_factory=dict)

    def holds(self, gpus: int, each: Vector) -> bool:
        return gpus <= self.gpus and not self.lacks(gpus, each)

    def lacks(self, gpus: int, each: Vector) -> bool:
        """Whether processors or memory are too few for so many GPUs, be they free or not."""
        return (
            each.cpus * gpus > self.cpus * (1 + SLACK) + SLACK
            or each.memory * gpus > self.memory * (1 + SLACK) + SLACK
        )


@dataclass
class Servers:
    """The servers of a round, what each job has of them, and how it would be cut."""

    servers: dict[int, Server]
    spread: dict[int, Spread] = field(default_factory=dict)
    given: dict[int, Vector] = field(default_factory=dict)

    @classmethod
    def of(cls, pool: Pool) -> Servers:
        """All that is free of a pool."""
        rows = enumerate(zip(pool.free, pool.cpus, pool.memory, strict=True))
        return cls({node: Server(node, *left) for node, left in rows if left[0]})

    def find(self, gpus: int, each: Vector, prefers: Iterable[int] = ()) -> Spread | None:
        """A server for all of a job: the one with fewest free GPUs. Else GPU by GPU from those with fewest.

        Of equal servers those that it ``prefers`` come first.
        """
        first = set(prefers)
        whole = [server for server in self.servers.values() if server.holds(gpus, each)]
        if whole:
            best = min(whole, key=lambda server: (server.gpus, server.node not in first, server.node))
            return {best.node: gpus}
        found: dict[int, int] = {}
        for server in sorted(self.servers.values(), key=lambda server: (server.gpus, server.node)):
            count = min(server.gpus, gpus)
            while count and not server.holds(count, each):
                count -= 1
            if count:
                found[server.node] = count
                gpus -= count
            if not gpus:
                return found
        return None

    def with_gpus(self, gpus: int) -> Spread:
        """Servers that have the GPUs, whatever else they lack: one, or those with fewest free ones."""
        whole = [server for server in self.servers.values() if server.gpus >= gpus]
        if whole:
            return {min(whole, key=lambda server: (server.gpus, server.node)).node: gpus}
        found: dict[int, int] = {}
        for server in sorted(self.servers.values(), key=lambda server: (server.gpus, server.node)):
            if count := min(server.gpus, gpus):
                found[server.node] = count
                gpus -= count
        return found

    def give(self, job: int, spread: Spread, each: Vector) -> None:
        self.spread[job], self.given[job] = spread, each
        for node, count in spread.items():
            server = self.servers[node]
            server.gpus -= count
            server.jobs[job] = count
            server.cpus -= each.cpus * count
            server.memory -= each.memory * count

    def cut(self, job: int, each: Vector) -> None:
        """Leave a job so much for each of its GPUs, on all its servers."""
        before = self.given[job]
        self.given[job] = each
        for node, count in self.spread[job].items():
            self.servers[node].cpus += (before.cpus - each.cpus) * count
            self.servers[node].memory += (before.memory - each.memory) * count


def equal_part(machines: Machines) -> Vector:
    """Processors and memory for each GPU, on the node that has least of both for its GPUs."""
    nodes = [node for node in machines if node.gpus]
    cpus = min(node.cpus / node.gpus for node in nodes)
    return Vector(cpus, min(node.memory / node.gpus for node in nodes))
