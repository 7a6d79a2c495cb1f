"""FlexFlow's task graph: parts of operators, transfers of tiles between devices, and gradient
synchronization.

Source: Jia, Zaharia and Aiken, "Beyond Data and Model Parallelism for Deep Neural Networks" (FlexFlow),
SysML'19, section 5.1. Each part of an operator is a forward and a backward task on its device. A tile that a
part reads and that another device made is a transfer task on a link; backward passes mirror it. Parts that
replicate parameters share one synchronization task.

A link is a serial device like any other: the way out of a device inside its node, the way out of a node on
the network; synchronization has one lane in each node and one on the network. A task's number says what it
is, and grows along every dependency: so ties in time have one order. Tasks are kept in slots, which are used
again.

Seconds are whole multiples of ``TICK``: sums of them are exact, so a schedule that is moved in time stays the
same to the bit.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from experiments.parallel.interface import Collective
from experiments.parallel.planning.operators.divisions import Configuration, part_overlaps
from experiments.parallel.planning.operators.lanes import TaskLanes
from experiments.parallel.planning.operators.operator_costs import OperatorCosts

#: Task numbers of one group (an operator's parts, or the transfers before them).
ROOM = 1 << 20
#: Seconds; sums below 2,000 s are exact.
TICK = 2.0**-42
#: An operator (and -1), or an edge.
Owner = tuple[int, int]


class OperatorPlacement(NamedTuple):
    """A configuration whose part ``p`` is on device ``first + p``."""

    degrees: Configuration
    first: int = 0

    @property
    def parts(self) -> int:
        return math.prod(self.degrees)


@dataclass(frozen=True)
class Change:
    """What moving operators did to a graph of tasks.

    Tasks that came and went, those that stay but wait for others now, and what it was like.
    """

    added: frozenset[int]
    removed: frozenset[int]
    touched: frozenset[int]
    placements: Mapping[int, OperatorPlacement]
    made: Mapping[Owner, list[int]]


class Tasks:
    """The tasks of one step under one placement of every operator.

    Columns are by slot; those that hold none have negative numbers.

    ``work`` has the seconds of all tasks of each lane.
    """

    def __init__(self, costs: OperatorCosts, placements: list[OperatorPlacement]) -> None:
        self.costs, self.placements = costs, list(placements)
        self.count = len(costs.operators)
        self.number: list[int] = []
        self.seconds: list[float] = []
        self.lane: list[int] = []
        self.before: list[list[int]] = []
        self.after: list[list[int]] = []
        self._lanes = TaskLanes(costs)
        self.work = [0.0] * self._lanes.count
        self._empty: list[int] = []
        self._slot_of: dict[int, int] = {}
        self._made: dict[Owner, list[int]] = {}
        self._edges: dict[int, list[Owner]] = {number: [] for number in range(self.count)}
        for source, reader in costs.edges:
            self._edges[source].append((source, reader))
            self._edges[reader].append((source, reader))
        self._tiles = functools.cache(self._shared_tiles)
        #: Tasks whose times were computed, over all simulations.
        self.timed = 0
        self._make(costs.report_each(range(self.count)), costs.report_each(costs.edges))

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def slots(self) -> list[int]:
        """Those that have a task."""
        return [slot for slot, number in enumerate(self.number) if number >= 0]

    def move(self, moves: Mapping[int, OperatorPlacement]) -> Change:
        """Give operators other placements and rebuild their tasks and the transfers around them."""
        edges = dict.fromkeys(edge for number in moves for edge in self._edges[number])
        owners = [*((number, -1) for number in moves), *edges]
        made = {owner: self._made.pop(owner, []) for owner in owners}
        removed = frozenset(task for tasks in made.values() for task in tasks)
        before = {number: self.placements[number] for number in moves}
        touched = self._detach(removed)
        for number, placement in moves.items():
            self.placements[number] = placement
        touched |= self._make(moves, edges)
        added = frozenset(task for owner in owners for task in self._made.get(owner, []))
        return Change(added, removed, frozenset(touched - removed - added), before, made)

    def undo(self, change: Change) -> None:
        """All as it was before ``change``, the last one that was neither kept nor undone."""
        self._detach(change.added)
        for owner in change.made:
            self._made.pop(owner, None)
        self._clear_slots(change.added)
        self._attach(change.removed)
        self._made |= {owner: tasks for owner, tasks in change.made.items() if tasks}
        for number, placement in change.placements.items():
            self.placements[number] = placement

    def keep(self, change: Change) -> None:
        """Nobody will undo ``change``: the slots of what went may be used again."""
        self._clear_slots(change.removed)

    # --- numbers
    # ----------------------------------------------------------------------------------------------------

    def forward(self, number: int, part: int) -> int:
        return (2 * number + 1) * ROOM + part

    def backward(self, number: int, part: int) -> int:
        return (2 * self.count + 2 * (self.count - 1 - number) + 1) * ROOM + part

    def _synchronization(self, number: int, which: int) -> int:
        return (4 * self.count + self.count - 1 - number) * ROOM + which

    # --- making and removing
    # ----------------------------------------------------------------------------------------

    def _make(self, numbers: Iterable[int], edges: Iterable[Owner]) -> set[int]:
        """Tasks of operators and edges; those that wait for others now."""
        waiting: set[int] = set()
        for number in numbers:
            self._add_operator(number)
        for source, reader in edges:
            waiting |= self._add_edge(source, reader)
        return waiting

    def _add(self, number: int, seconds: float, lane: int, owner: Owner) -> int:
        if self._empty:
            slot = self._empty.pop()
        else:
            slot = len(self.number)
            self.number.append(-1)
            self.seconds.append(0.0)
            self.lane.append(0)
            self.before.append([])
            self.after.append([])
        whole = round(seconds / TICK) * TICK
        self.number[slot], self.seconds[slot], self.lane[slot] = number, whole, lane
        self.before[slot], self.after[slot] = [], []
        self.work[lane] += whole
        self._slot_of[number] = slot
        self._made.setdefault(owner, []).append(slot)
        return slot

    def _link(self, before: int, after: int) -> None:
        self.before[after].append(before)
        self.after[before].append(after)

    def _detach(self, gone: Collection[int]) -> set[int]:
        """Other tasks forget these, which remember them; those that waited for one."""
        touched = set()
        for task in gone:
            self.number[task] = ~self.number[task]
            self.work[self.lane[task]] -= self.seconds[task]
            for other in self.before[task]:
                if other not in gone:
                    self.after[other].remove(task)
            for other in self.after[task]:
                if other not in gone:
                    self.before[other].remove(task)
                    touched.add(other)
        return touched

    def _attach(self, tasks: Collection[int]) -> None:
        for task in tasks:
            self.number[task] = ~self.number[task]
            self.work[self.lane[task]] += self.seconds[task]
            self._slot_of[self.number[task]] = task
            for other in self.before[task]:
                if other not in tasks:
                    self.after[other].append(task)
            for other in self.after[task]:
                if other not in tasks:
                    self.before[other].append(task)

    def _clear_slots(self, tasks: Iterable[int]) -> None:
        self._empty += sorted(tasks)

    def _add_operator(self, number: int) -> None:
        placement, owner = self.placements[number], (number, -1)
        parts = self.costs.work_parts(number, placement.degrees)
        backward = []
        for part in range(placement.parts):
            device = placement.first + part
            there, back = self._part_seconds(number, device)
            first = self._add(self.forward(number, part), there / parts, device, owner)
            backward.append(self._add(self.backward(number, part), back / parts, device, owner))
            self._link(first, backward[-1])
        for which, (reduction, group) in enumerate(self._reductions(number)):
            seconds, lane = self._lanes.reduction(reduction.bytes, tuple(placement.first + p for p in group))
            task = self._add(self._synchronization(number, which), seconds, lane, owner)
            for part in group:
                self._link(backward[part], task)

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

    def _add_edge(self, source: int, reader: int) -> set[int]:
        """Dependencies and transfers between the parts of two operators, forward and backward; the tasks that
        wait.
        """
        sent, read, owner = self.placements[source], self.placements[reader], (source, reader)
        firsts = [self._edges[end].index(owner) * self.costs.devices**2 for end in (reader, source)]
        there_group = 2 * reader * ROOM + firsts[0]
        back_group = 2 * (2 * self.count - 1 - source) * ROOM + firsts[1]
        waiting = set()
        for p, q, size in self._tiles(source, reader, sent.degrees, read.degrees):
            tile = p * self.costs.devices + q
            here, there = sent.first + p, read.first + q
            ends = self._slot_of[self.forward(source, p)], self._slot_of[self.forward(reader, q)]
            self._pass(ends, there_group + tile, (here, there), size, owner)
            back = self._slot_of[self.backward(reader, q)], self._slot_of[self.backward(source, p)]
            self._pass(back, back_group + tile, (there, here), size, owner)
            waiting |= {ends[1], back[1]}
        return waiting

    def _pass(
        self, ends: tuple[int, int], number: int, devices: tuple[int, int], size: float, owner: Owner
    ) -> None:
        """``size`` bytes go from the device of one task to that of another; on one device, or without bytes,
        only the order is kept.
        """
        before, after = ends
        if devices[0] == devices[1] or size == 0:
            self._link(before, after)
            return
        task = self._add(number, *self._lanes.transfer(*devices, size), owner)
        self._link(before, task)
        self._link(task, after)

    def _shared_tiles(
        self, source: int, reader: int, sent: Configuration, read: Configuration
    ) -> list[tuple[int, int, float]]:
        """Parts of the source and of the reader of which one reads what the other made, and the bytes."""
        total = np.zeros((math.prod(sent), math.prod(read)))
        reads = np.zeros(total.shape, np.bool_)
        for operand in self.costs.edges[source, reader]:
            there, wanted = self.costs.boxes(source, reader, operand, (sent,), (read,))
            whole = float(np.prod([i[-1, 1] for i in there.intervals]))
            shared = part_overlaps(there, wanted)[: total.shape[0], : total.shape[1]]
            total += shared / whole * operand.bytes
            reads |= shared > 0
        return [(p, q, float(total[p, q])) for p, q in np.argwhere(reads).tolist()]


def placements_of(costs: OperatorCosts, number: int) -> list[OperatorPlacement]:
    """Every configuration on every block of neighboring devices that it fills."""
    found = []
    for degrees in costs.choices[number]:
        parts = math.prod(degrees)
        found += [OperatorPlacement(degrees, first) for first in range(0, costs.devices, parts)]
    return found
