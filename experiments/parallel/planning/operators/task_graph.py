"""FlexFlow's task graph: parts of operators, transfers of tiles between devices, and gradient synchronisation.

Source: Jia, Zaharia and Aiken, "Beyond Data and Model Parallelism for Deep Neural Networks" (FlexFlow), SysML'19, section 5.1.
Each part of an operator is a forward and a backward task on its device. A tile that a part reads and that another device made
is a transfer task on a link; backward passes mirror it. Parts that replicate parameters share one synchronisation task.

A link is a serial device like any other: the way out of a device inside its node, the way out of a node on the network;
synchronisation has one lane in each node and one on the network. A task's number says what it is, and grows along every
dependency: so ties in time have one order, and a task can be found, removed and made again.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from experiments.hardware.patterns import ring_all_reduce
from experiments.parallel.interface import Collective
from experiments.parallel.planning.operators.divisions import Configuration, part_overlaps
from experiments.parallel.planning.operators.operator_costs import OperatorCosts
from experiments.workloads.step import Floats

#: Task numbers of one slot (an operator's parts, or the transfers before them).
ROOM = 1 << 20


class Placement(NamedTuple):
    """A configuration whose part ``p`` is on device ``first + p``."""

    degrees: Configuration
    first: int = 0

    @property
    def parts(self) -> int:
        return math.prod(self.degrees)


class Tasks:
    """The tasks of one step under one placement of every operator; ``changed`` are those whose inputs changed."""

    def __init__(self, costs: OperatorCosts, placements: list[Placement]) -> None:
        self.costs, self.placements = costs, list(placements)
        self.count = len(costs.operators)
        self.seconds: dict[int, float] = {}
        self.lane: dict[int, int] = {}
        self.before: dict[int, list[int]] = {}
        self.after: dict[int, list[int]] = {}
        self.changed: set[int] = set()
        self.removed: set[int] = set()
        self._made: dict[tuple[int, int], list[int]] = {}
        self._edges: dict[int, list[tuple[int, int]]] = {number: [] for number in range(self.count)}
        for source, reader in costs.edges:
            self._edges[source].append((source, reader))
            self._edges[reader].append((source, reader))
        self._lanes = _Lanes(costs)
        self._volumes = functools.cache(self._part_volumes)
        for number in range(self.count):
            self._add_operator(number)
        for edge in costs.edges:
            self._add_edge(*edge)

    def __len__(self) -> int:
        return len(self.seconds)

    def place(self, number: int, placement: Placement) -> None:
        """Gives one operator another placement: its tasks and the transfers around it are made again."""
        for edge in self._edges[number]:
            self._remove(edge)
        self._remove((number, -1))
        self.placements[number] = placement
        self._add_operator(number)
        for edge in self._edges[number]:
            self._add_edge(*edge)

    # --- numbers ----------------------------------------------------------------------------------------------------

    def forward(self, number: int, part: int) -> int:
        return (2 * number + 1) * ROOM + part

    def backward(self, number: int, part: int) -> int:
        return (2 * self.count + 2 * (self.count - 1 - number) + 1) * ROOM + part

    def _synchronisation(self, number: int, which: int) -> int:
        return (4 * self.count + self.count - 1 - number) * ROOM + which

    # --- making and removing ----------------------------------------------------------------------------------------

    def _add(self, task: int, seconds: float, lane: int, owner: tuple[int, int]) -> None:
        self.seconds[task], self.lane[task] = seconds, lane
        self.before[task], self.after[task] = [], []
        self._made.setdefault(owner, []).append(task)
        self.changed.add(task)
        self.removed.discard(task)

    def _link(self, before: int, after: int) -> None:
        self.before[after].append(before)
        self.after[before].append(after)
        self.changed.add(after)

    def _remove(self, owner: tuple[int, int]) -> None:
        for task in self._made.pop(owner, []):
            for other in self.before.pop(task):
                if other in self.after:
                    self.after[other].remove(task)
            for other in self.after.pop(task):
                if other in self.before:
                    self.before[other].remove(task)
                    self.changed.add(other)
            del self.seconds[task], self.lane[task]
            self.changed.discard(task)
            self.removed.add(task)

    def _add_operator(self, number: int) -> None:
        placement, owner = self.placements[number], (number, -1)
        for part in range(placement.parts):
            device = placement.first + part
            there, back = self._part_seconds(number, device)
            self._add(self.forward(number, part), there / placement.parts, device, owner)
            self._add(self.backward(number, part), back / placement.parts, device, owner)
            self._link(self.forward(number, part), self.backward(number, part))
        for which, (reduction, group) in enumerate(self._reductions(number)):
            task = self._synchronisation(number, which)
            seconds, lane = self._lanes.reduction(reduction.bytes, tuple(placement.first + p for p in group))
            self._add(task, seconds, lane, owner)
            for part in group:
                self._link(self.backward(number, part), task)

    def _part_seconds(self, number: int, device: int) -> tuple[float, float]:
        """Forward and backward seconds of the whole operator on ``device``."""
        operator, model = self.costs.operators[number], self.costs.model
        scale = operator.share * self.costs.batch / model.batch * self.costs.estimate.slowdown(device)
        there, back = model.forward_seconds[operator.layer], model.backward_seconds[operator.layer]
        return float(there) * scale, float(back) * scale

    def _reductions(self, number: int) -> Iterator[tuple[Collective, tuple[int, ...]]]:
        """Each group of parts that replicates the same piece of the parameters."""
        placement = self.placements[number]
        for reduction in self.costs.reductions(number, placement.degrees):
            for group in reduction.groups(range(placement.parts)):
                yield reduction, group

    def _add_edge(self, source: int, reader: int) -> None:
        """Dependencies and transfers between the parts of two operators, forward and backward."""
        sent, read, owner = self.placements[source], self.placements[reader], (source, reader)
        volumes = self._volumes(source, reader, sent.degrees, read.degrees)
        firsts = [
            self._edges[end].index((source, reader)) * self.costs.devices**2 for end in (reader, source)
        ]
        for p, q in np.argwhere(volumes >= 0).tolist():
            tile = p * self.costs.devices + q
            here, there = sent.first + p, read.first + q
            slots = [2 * reader * ROOM, 2 * (2 * self.count - 1 - source) * ROOM]
            there_task, back_task = (slot + first + tile for slot, first in zip(slots, firsts, strict=True))
            size = float(volumes[p, q])
            self._pass(
                self.forward(source, p), there_task, self.forward(reader, q), (here, there), size, owner
            )
            self._pass(
                self.backward(reader, q), back_task, self.backward(source, p), (there, here), size, owner
            )

    def _pass(
        self,
        before: int,
        task: int,
        after: int,
        devices: tuple[int, int],
        size: float,
        owner: tuple[int, int],
    ) -> None:
        """``size`` bytes go from one device to another by ``task``; on one device, or without bytes, only the order is
        kept.
        """
        if devices[0] == devices[1] or size == 0:
            self._link(before, after)
            return
        seconds, lane = self._lanes.transfer(*devices, size)
        self._add(task, seconds, lane, owner)
        self._link(before, task)
        self._link(task, after)

    def _part_volumes(self, source: int, reader: int, sent: Configuration, read: Configuration) -> Floats:
        """Bytes that part ``q`` of the reader reads of what part ``p`` of the source made; -1: nothing. Shape: (p, q)."""
        total = np.zeros((math.prod(sent), math.prod(read)))
        reads = np.zeros(total.shape, np.bool_)
        for operand in self.costs.edges[source, reader]:
            there, wanted = self.costs.boxes(source, reader, operand, (sent,), (read,))
            whole = float(np.prod([i[-1, 1] for i in there.intervals]))
            shared = part_overlaps(there, wanted)[: total.shape[0], : total.shape[1]]
            total += shared / whole * operand.bytes
            reads |= shared > 0
        return np.where(reads, total, -1.0)


class _Lanes:
    """Numbers of serial devices: those that compute, the ways out of devices and of nodes, lanes for synchronisation."""

    def __init__(self, costs: OperatorCosts) -> None:
        self._topology, self._node_of = costs.wires.topology, costs.wires.node_of
        self._cluster, self._devices = costs.estimate.cluster, costs.devices
        self._reduction = functools.cache(self._reduction_cost)

    def transfer(self, source: int, target: int, size: float) -> tuple[float, int]:
        """Seconds and lane."""
        node = self._node_of[source]
        if node == self._node_of[target]:
            return self._cluster.nodes[node].link.time(size), self._devices + source
        return self._cluster.network.time(size), 2 * self._devices + node

    def reduction(self, size: float, group: tuple[int, ...]) -> tuple[float, int]:
        latency, slope, lane = self._reduction(group)
        return latency + slope * size, lane

    def _reduction_cost(self, group: tuple[int, ...]) -> tuple[float, float, int]:
        cost = self._topology.cost(ring_all_reduce(np.array([group]), self._topology))
        nodes = {self._node_of[device] for device in group}
        first = 2 * self._devices + len(self._cluster.nodes)
        lane = first + (min(nodes) + 1 if len(nodes) == 1 else 0)
        return cost.latency, cost.slope, lane


def placements_of(costs: OperatorCosts, number: int) -> list[Placement]:
    """Every configuration on every block of neighbouring devices that it fills."""
    found = []
    for degrees in costs.choices[number]:
        parts = math.prod(degrees)
        found += [Placement(degrees, first) for first in range(0, costs.devices, parts)]
    return found
