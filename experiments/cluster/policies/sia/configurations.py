"""What a job may be given: a type of device, and a power of two of one node's or whole nodes (section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from experiments.cluster.interface import Machines


class Configuration(NamedTuple):
    """``gpus`` devices of one type, on ``nodes`` nodes."""

    kind: str
    gpus: int
    nodes: int


def configurations(machines: Machines, capacity: Sequence[int]) -> list[Configuration]:
    """Return those that fit what works of a cluster, types in alphabetical order, smaller ones first.

    Of nodes of one type the commonest size counts.
    """
    found = []
    for kind in machines.types:
        sizes = [machines.sizes[node] for node in range(len(machines)) if machines[node].device == kind]
        size = max(set(sizes), key=lambda size: (sizes.count(size), size))
        free = sum(capacity[node] for node in range(len(machines)) if machines[node].device == kind)
        gpus = 1
        while gpus < size and gpus <= free:
            found.append(Configuration(kind, gpus, 1))
            gpus *= 2
        found += [Configuration(kind, nodes * size, nodes) for nodes in range(1, free // size + 1)]
    return found
