"""The machines of a cluster as schedulers know them: nodes in order, each with its devices, processors and
memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from experiments.core.errors import BadInput

#: What a machine has of something that nobody told: as much as anybody wants.
UNKNOWN = math.inf


@dataclass(frozen=True)
class Machine:
    """One node.

    ``name``       as the cluster's own list has it.
    ``gpus``       devices; a node of processors alone has none.
    ``device``     their type, a sheet's name where it has one.
    ``cpus``       processors.
    ``memory``     host memory in bytes.
    ``sockets``    equal groups of devices next to one processor.
    ``rack``       nodes of one rack share a leaf switch.
    ``network``    bytes/s of the node's adapter.
    ``storage``    bytes/s at which checkpoints are written and read.
    ``price``      of one device for an hour, in dollars.
    """

    name: str
    gpus: int
    device: str = ""
    cpus: float = UNKNOWN
    memory: float = UNKNOWN
    sockets: int = 1
    rack: int = 0
    network: float = UNKNOWN
    storage: float = UNKNOWN
    price: float = 0.0


class Machines:
    """The nodes of a cluster. Devices are numbered node by node: those of node ``n`` from ``first[n]``."""

    def __init__(self, nodes: Iterable[Machine]) -> None:
        self._nodes = tuple(nodes)
        self.sizes: tuple[int, ...] = tuple(node.gpus for node in self._nodes)
        if not self._nodes:
            raise BadInput("the cluster has no node", "hardware", "one node or more")
        first, node_of = [], list[int]()
        for number, size in enumerate(self.sizes):
            first.append(len(node_of))
            node_of += [number] * size
        self.first: tuple[int, ...] = tuple(first)
        self.node_of: tuple[int, ...] = tuple(node_of)
        self.devices = len(node_of)

    @classmethod
    def of_sizes(cls, sizes: Iterable[int], device: str = "") -> Machines:
        """Nodes of so many devices each, of which nothing else is known."""
        return cls(Machine(f"node-{number}", size, device) for number, size in enumerate(sizes))

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Machine]:
        return iter(self._nodes)

    def __getitem__(self, node: int) -> Machine:
        return self._nodes[node]

    @cached_property
    def types(self) -> tuple[str, ...]:
        """The types of devices, in alphabetical order."""
        return tuple(sorted({node.device for node in self._nodes if node.gpus}))

    @cached_property
    def count_by_type(self) -> dict[str, int]:
        return {kind: sum(node.gpus for node in self._nodes if node.device == kind) for kind in self.types}

    @cached_property
    def knows_hosts(self) -> bool:
        """Whether some node's processors or memory are limited."""
        return any(math.isfinite(node.cpus) or math.isfinite(node.memory) for node in self._nodes)

    def type_of(self, device: int) -> str:
        """The type of one device."""
        return self._nodes[self.node_of[device]].device

    def devices_of(self, node: int) -> range:
        """The numbers of a node's devices."""
        return range(self.first[node], self.first[node] + self.sizes[node])

    def by_node(self, devices: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """How many of ``devices`` each node has: ``((node, count), ...)``, nodes ascending."""
        counts: dict[int, int] = {}
        for device in devices:
            node = self.node_of[device]
            counts[node] = counts.get(node, 0) + 1
        return tuple(sorted(counts.items()))
