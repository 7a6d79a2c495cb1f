"""What is free on every node, in columns, a row for each node; devices in thousandths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.cluster.interface import Demand, Gang, Machines
from experiments.cluster.interface.allocation import OnHost
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

WHOLE = 1000.0
#: Thousandths within this are the same: sums of shares are not exact.
SLACK = 1e-6


class FreeNodes:
    """Free parts of devices (``idle``, a row for each node and 0 where it has no device), processors, bytes.

    Rows are nodes in the order of their names, so that the first of equals is the one with the smallest name,
    or in the ``order`` given. ``changes`` are the rows whose state changed, in the order in which that
    happened.
    """

    def __init__(self, machines: Machines, order: Sequence[int] | None = None) -> None:
        self.machines = machines
        by_name = sorted(range(len(machines)), key=lambda node: (machines[node].name, node))
        self.order = by_name if order is None else list(order)
        self.row_of = {node: row for row, node in enumerate(self.order)}
        sizes = np.array([machines.sizes[node] for node in self.order])
        self.idle: Floats = np.where(np.arange(max(1, sizes.max())) < sizes[:, None], WHOLE, 0.0)
        self.cpus: Floats = np.array([machines[node].cpus for node in self.order], np.float64)
        self.memory: Floats = np.array([machines[node].memory for node in self.order], np.float64)
        self.closed = np.zeros(len(machines), np.bool_)
        self.changes: list[int] = []
        self._allowed: dict[tuple[str, ...], Any] = {}

    @property
    def capacity(self) -> float:
        """Thousandths of all devices."""
        return self.machines.devices * WHOLE

    def allowed(self, types: tuple[str, ...]) -> Any:
        """Which rows have devices of one of ``types``; of any where none is named."""
        if types not in self._allowed:
            kinds = [self.machines[node].device for node in self.order]
            self._allowed[types] = np.array([not types or kind in types for kind in kinds])
        return self._allowed[types]

    def fitting(self, demand: Demand, rows: Any = slice(None)) -> Any:
        """Which of ``rows`` can hold all that is demanded."""
        fits = ~self.closed[rows] & (self.cpus[rows] + SLACK >= demand.cpus)
        fits &= self.memory[rows] * (1 + 1e-9) >= demand.memory
        if demand.gpus:
            sufficient = self.idle[rows] + SLACK >= demand.share * WHOLE
            fits &= self.allowed(demand.types)[rows] & (sufficient.sum(axis=1) >= demand.gpus)
        return fits

    def fullest(self, demand: Demand, row: int) -> tuple[int, ...]:
        """The places of devices of ``row`` with the least left that is enough, the first of equals."""
        left = self.idle[row]
        places = np.flatnonzero(left + SLACK >= demand.share * WHOLE)
        chosen = places[np.argsort(left[places], kind="stable")][: demand.gpus]
        return tuple(sorted(chosen.tolist()))

    def gang(self, job: int, demand: Demand, row: int, places: tuple[int, ...]) -> Gang:
        """The gang of ``job`` on ``places`` of ``row``."""
        node = self.order[row]
        first = self.machines.first[node]
        asks = demand.cpus or demand.memory or not places
        hosts = (OnHost(node, demand.cpus, demand.memory),) if asks else ()
        return Gang(job, tuple(first + place for place in places), demand.share, demand.share, hosts)

    def take(self, gang: Gang) -> None:
        self._change(gang, -1)

    def give_back(self, gang: Gang) -> None:
        self._change(gang, +1)

    def _change(self, gang: Gang, sign: int) -> None:
        for device in gang.devices:
            node = self.machines.node_of[device]
            row = self.row_of[node]
            self.idle[row, device - self.machines.first[node]] += sign * WHOLE * max(gang.share, gang.memory)
            self.changes.append(row)
        for host in gang.hosts:
            row = self.row_of[host.node]
            self.cpus[row] += sign * host.cpus
            self.memory[row] += sign * host.memory
            self.changes.append(row)

    def close(self, down: frozenset[int]) -> None:
        """Take the nodes that are ``down`` out of use, and the others into it."""
        closed = np.array([node in down for node in self.order])
        self.changes += np.flatnonzero(closed != self.closed).tolist()
        self.closed = closed


def after(nodes: FreeNodes, demand: Demand, rows: Ints) -> Floats:
    """What is idle on ``rows`` once the fullest sufficient devices were taken there."""
    left = nodes.idle[rows]
    want = demand.share * WHOLE
    if not demand.gpus:
        return left
    keys = np.where(left + SLACK >= want, left, np.inf)
    places = np.argsort(keys, axis=1, kind="stable")[:, : demand.gpus]
    left[np.arange(len(rows))[:, None], places] -= want
    return left
