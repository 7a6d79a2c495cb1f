"""Embedding tables on devices: whole, by column, by row, by row inside a node, or replicated; who gets which
shard.

Source: Mudigere et al., "Software-Hardware Co-design for Fast and Scalable Training of Deep Learning
Recommendation Models", ISCA'22, section 4.2 (4D parallelism, placement); seconds of a shard as the planner of
the open library that came of it estimated them at first (lookups in memory, indices and pooled rows over the
network).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

#: The ways to lay a table out, in the order in which they are tried.
LAYOUTS = ("table", "column", "row", "table_row", "data")
#: Shards of all devices are placed first, single ones last.
SPREADS = ("all", "node", "device")


@dataclass(frozen=True)
class EmbeddingTable:
    """A table of which ``lookups`` rows of ``width`` values are read for a sample.

    Sizes in bytes.
    """

    name: str
    rows: int
    width: int
    lookups: float
    value_bytes: float
    index_bytes: float

    @property
    def values(self) -> int:
        return self.rows * self.width


@dataclass(frozen=True)
class Machines:
    """Bytes/s that each device has of its memory, of the links in its node and of the network between nodes.

    ``capacity`` are bytes of a device, ``state_bytes`` those that a value takes with its gradient and
    optimizer state.
    """

    nodes: int
    per_node: int
    memory_rate: float
    node_rate: float
    network_rate: float
    capacity: float
    state_bytes: float

    @property
    def devices(self) -> int:
        return self.nodes * self.per_node

    @property
    def across(self) -> float:
        """The rate of an exchange among all devices."""
        return self.network_rate if self.nodes > 1 else self.node_rate


@dataclass(frozen=True)
class Shard:
    """A part of table ``table``: seconds, bytes and seconds of lookups alone, on each device that has it.

    ``spread`` is ``device`` (one of them), ``node`` (each of one node) or ``all``.
    """

    table: int
    spread: str
    seconds: float
    bytes: float
    lookup_seconds: float


def shards(number: int, table: EmbeddingTable, layout: str, samples: int, machines: Machines) -> list[Shard]:
    """Return the shards of table ``number`` for ``samples`` samples over all devices.

    A layout without any does not apply.
    """
    indices = samples * table.lookups * table.index_bytes / machines.across
    lookups = samples * table.lookups * table.width * table.value_bytes / machines.memory_rate
    pooled = samples * table.width * table.value_bytes
    size, devices, local = table.values * machines.state_bytes, machines.devices, machines.per_node
    out = pooled / machines.across
    if layout == "table":
        return [Shard(number, "device", indices + lookups + out, size, lookups)]
    if layout == "column":
        parts = next((k for k in (4, 2) if table.width % k == 0 and k <= devices), 0)
        share = 1 / max(parts, 1)
        part = Shard(number, "device", indices + (lookups + out) * share, size * share, lookups * share)
        return [part] * parts
    if layout == "row":
        seconds = (indices + lookups) / devices + out
        return [Shard(number, "all", seconds, size / devices, lookups / devices)]
    if layout == "table_row":
        between = pooled * (1 / machines.node_rate + local / devices / machines.across)
        seconds = (indices + lookups) / local + between
        part = Shard(number, "node", seconds, size / local, lookups / local)
        return [part] if machines.nodes > 1 and local > 1 else []
    update = table.values * table.value_bytes / machines.across
    return [Shard(number, "all", lookups / devices + update, size, lookups / devices)]


@dataclass(frozen=True)
class Loads:
    """Seconds, bytes and lookup seconds of each device, and the devices of each shard in the order given."""

    seconds: tuple[float, ...]
    bytes: tuple[float, ...]
    lookup_seconds: tuple[float, ...]
    homes: tuple[tuple[int, ...], ...]

    @property
    def slowest(self) -> float:
        return max(self.seconds)


def place(found: Sequence[Shard], machines: Machines, capacity: float, balanced: bool = True) -> Loads | None:
    """Return the loads of placed shards; ``None`` where they do not fit in ``capacity`` bytes.

    Shards of every device come first, then those of a node, then single ones.

    Each goes where least seconds are; ``balanced`` also tries the differencing method for the single ones and
    keeps the better.
    """
    tried = [_greedy(found, machines, capacity, None)]
    single = [i for i, shard in enumerate(found) if shard.spread == "device"]
    if balanced and single:
        parts = differencing([found[i].seconds for i in single], machines.devices)
        homes = {single[i]: device for device, part in enumerate(parts) for i in part}
        tried.append(_greedy(found, machines, capacity, homes))
    fitting = [loads for loads in tried if loads is not None]
    return min(fitting, key=lambda loads: loads.slowest, default=None)


def _greedy(
    found: Sequence[Shard], machines: Machines, capacity: float, homes: dict[int, int] | None
) -> Loads | None:
    count = machines.devices
    seconds, size, lookups = [0.0] * count, [0.0] * count, [0.0] * count
    chosen: list[tuple[int, ...]] = [()] * len(found)
    order = sorted(range(len(found)), key=lambda i: (SPREADS.index(found[i].spread), -found[i].seconds, i))
    for index in order:
        shard = found[index]
        if homes is not None and index in homes:
            options: list[tuple[int, ...]] = [(homes[index],)]
        else:
            options = _homes(shard.spread, machines)
        able = [home for home in options if all(size[d] + shard.bytes <= capacity for d in home)]
        if not able:
            return None
        home = min(able, key=lambda devices: (max(seconds[d] for d in devices), devices))
        for device in home:
            seconds[device] += shard.seconds
            size[device] += shard.bytes
            lookups[device] += shard.lookup_seconds
        chosen[index] = home
    return Loads(tuple(seconds), tuple(size), tuple(lookups), tuple(chosen))


def _homes(spread: str, machines: Machines) -> list[tuple[int, ...]]:
    every = range(machines.devices)
    if spread == "all":
        return [tuple(every)]
    if spread == "device":
        return [(device,) for device in every]
    return [tuple(every[start : start + machines.per_node]) for start in every[:: machines.per_node]]


def differencing(costs: Sequence[float], parts: int) -> list[list[int]]:
    """Return ``costs`` in ``parts`` sets of about equal sums.

    The largest differencing method of Karmarkar and Karp, 1982.

    The two partitions whose sums differ most are joined, largest set to smallest, until one is left.
    """
    counter = itertools.count()
    heap: list[tuple[float, int, list[tuple[float, list[int]]]]] = []
    for index, cost in sorted(enumerate(costs), key=lambda pair: -pair[1]):
        sums: list[tuple[float, list[int]]] = [*([(0.0, [])] * (parts - 1)), (float(cost), [index])]
        heapq.heappush(heap, (-float(cost), next(counter), sums))
    while len(heap) > 1:
        first, second = heapq.heappop(heap)[2], heapq.heappop(heap)[2]
        pairs = zip(first, reversed(second), strict=True)
        joined = sorted(((a + b, [*x, *y]) for (a, x), (b, y) in pairs), key=lambda item: item[0])
        heapq.heappush(heap, (joined[0][0] - joined[-1][0], next(counter), joined))
    return [members for _, members in heap[0][2]] if heap else [[] for _ in range(parts)]
