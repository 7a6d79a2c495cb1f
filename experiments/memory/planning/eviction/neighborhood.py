"""The evicted neighborhood of a storage (section 3 of the paper): what its absence would cost others.

- ``Local`` counts none;
- ``Full`` every evicted ancestor and descendant reachable through evicted ones;
- ``Classes`` (the paper's equivalence classes) keeps evicted storages in classes that grow by union: a
  storage that returns takes its own cost out of its class and leaves it, the class is never split.

Prices change only around a storage that leaves or returns, so they are kept, not worked out for each choice.
Costs are whole multiples of ``GRAIN``: their sums are then exact, in whatever order they are formed, and what
is equal stays equal.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter

import numpy as np

from experiments.memory.interface import Lineage
from experiments.workloads.step import Floats, Step

#: Seconds; 2^-40, a picosecond.
GRAIN = 2.0**-40


def round_to_grain(seconds: Floats) -> Floats:
    """``seconds`` as whole multiples of the grain."""
    rounded: Floats = np.round(seconds / GRAIN) * GRAIN
    return rounded


class Relations:
    """Of every tensor the seconds that its ops took, the tensors it was made from and those made from it."""

    def __init__(self, step: Step, lineage: Lineage) -> None:
        seconds: list[float] = round_to_grain(step.ops.seconds).tolist()
        count = len(step.tensors)
        self.cost: list[float] = [sum(seconds[op] for op in makers) for makers in lineage.writers]
        self.parents: list[list[int]] = [[] for _ in range(count)]
        self.children: list[list[int]] = [[] for _ in range(count)]
        for tensor, makers in enumerate(lineage.writers):
            if not lineage.persistent[tensor]:
                reads = dict.fromkeys(s for op in makers for s in lineage.reads[op])
                self.parents[tensor] = [s for s in reads if s != tensor and not lineage.persistent[s]]
                for source in self.parents[tensor]:
                    self.children[source].append(tensor)

    def neighbors(self, tensor: int) -> list[int]:
        """Its parents and children, each once."""
        return list(dict.fromkeys((*self.parents[tensor], *self.children[tensor])))


class Local:
    """The storage's own cost. ``prices`` is what is at stake when each tensor leaves."""

    def __init__(self, relations: Relations) -> None:
        self.relations = relations
        self._prices: Floats = np.array(relations.cost, np.float64)

    @property
    def prices(self) -> Floats:
        """The present price of every tensor that is there."""
        return self._prices

    def price(self, tensor: int) -> float:
        """The present price of one."""
        return float(self.prices[tensor])

    def note_departure(self, tensor: int) -> None: ...

    def note_return(self, tensor: int) -> None: ...


class Full(Local):
    """Its own cost and that of all evicted ancestors and descendants that touch it through evicted ones.

    ``_up`` and ``_down`` keep for evicted ones which others each reaches, as the bits of a number, until one
    of these leaves or returns.
    """

    def __init__(self, relations: Relations) -> None:
        super().__init__(relations)
        self.absent: set[int] = set()
        self._outdated: set[int] = set()
        self._up: dict[int, int] = {}
        self._down: dict[int, int] = {}
        self._octets = -(-len(relations.cost) // 8)
        self._cost_of_bit = np.zeros(8 * self._octets)
        self._cost_of_bit[: len(relations.cost)] = relations.cost

    @property
    def prices(self) -> Floats:
        """Ancestors in ascending and descendants in descending order: the nearer to the end come first."""
        now = sorted(self._outdated - self.absent)
        above = [self._find_touched(tensor, self.relations.parents, self._up) for tensor in now]
        below = [self._find_touched(tensor, self.relations.children, self._down) for tensor in reversed(now)]
        for tensor, one, other in zip(now, above, reversed(below), strict=True):
            self._prices[tensor] = self.relations.cost[tensor] + self._cost_of(one | other)
        self._outdated &= self.absent
        return self._prices

    def note_departure(self, tensor: int) -> None:
        self.absent.add(tensor)
        self._outdate_around(tensor)

    def note_return(self, tensor: int) -> None:
        self._outdate_around(tensor)
        self.absent.discard(tensor)

    def _outdate_around(self, tensor: int) -> None:
        """Everything that reaches ``tensor`` through evicted ones, in either direction, and itself."""
        self._outdated.add(tensor)
        for neighbors, known in (
            (self.relations.parents, self._down),
            (self.relations.children, self._up),
        ):
            reached = {tensor, *self._absent_from(tensor, neighbors)}
            for one in reached:
                known.pop(one, None)
                self._outdated.update(neighbors[one])

    def _absent_from(self, tensor: int, neighbors: list[list[int]]) -> set[int]:
        found: set[int] = set()
        todo = list(neighbors[tensor])
        while todo:
            other = todo.pop()
            if other in self.absent and other not in found:
                found.add(other)
                todo += neighbors[other]
        return found

    def _find_touched(self, tensor: int, neighbors: list[list[int]], known: dict[int, int]) -> int:
        """What is evicted and reached from ``tensor``, as bits."""
        found = 0
        for other in neighbors[tensor]:
            if other in self.absent:
                found |= self._find_reached(other, neighbors, known)
        return found

    def _find_reached(self, start: int, neighbors: list[list[int]], known: dict[int, int]) -> int:
        """``start``, which is evicted, and what is evicted and reached from it, as bits.

        All that is met on the way is known then too, but for what goes round in a circle.
        """
        seen, todo = {start}, [] if start in known else [start]
        while todo:
            for other in neighbors[todo.pop()]:
                if other in self.absent and other not in seen:
                    seen.add(other)
                    if other not in known:
                        todo.append(other)
        for one in sorted(seen, reverse=neighbors is self.relations.children):
            if one not in known:
                others = [other for other in neighbors[one] if other in self.absent]
                if all(other in known for other in others):
                    known[one] = functools.reduce(operator.or_, (known[o] for o in others), 1 << one)
        if start not in known:
            known[start] = functools.reduce(operator.or_, (known.get(one, 1 << one) for one in seen))
        return known[start]

    def _cost_of(self, found: int) -> float:
        if not found:
            return 0.0
        octets = np.frombuffer(found.to_bytes(self._octets, "little"), np.uint8)
        return float(self._cost_of_bit @ np.unpackbits(octets, bitorder="little"))


class Classes(Local):
    """Its own cost and that of the classes of its evicted neighbors, each class once.

    ``rim[c]`` counts for each tensor how many members of class ``c`` are neighbors of it: the class is part
    of the price of those tensors.
    """

    def __init__(self, relations: Relations) -> None:
        super().__init__(relations)
        self.member: dict[int, int] = {}
        self.above: list[int] = []
        self.total: list[float] = []
        self.rim: list[Counter[int]] = []

    def note_departure(self, tensor: int) -> None:
        near = self.relations.neighbors(tensor)
        roots = list(dict.fromkeys(self._root(self.member[other]) for other in near if other in self.member))
        self.member[tensor] = own = len(self.above)
        self.above.append(own)
        self.total.append(self.relations.cost[tensor])
        self.rim.append(Counter(near))
        self._add(own, self.total[own])
        for root in roots:
            self._unite(self._root(own), root)

    def note_return(self, tensor: int) -> None:
        if tensor not in self.member:
            return
        root = self._root(self.member.pop(tensor))
        self._add(root, -self.relations.cost[tensor])
        self.total[root] -= self.relations.cost[tensor]
        rim = self.rim[root]
        for other in self.relations.neighbors(tensor):
            rim[other] -= 1
            if not rim[other]:
                del rim[other]
                self._prices[other] -= self.total[root]

    def _unite(self, one: int, other: int) -> None:
        """The class with the smaller rim joins the one with the larger."""
        large, small = (one, other) if len(self.rim[one]) >= len(self.rim[other]) else (other, one)
        both = [t for t in self.rim[small] if t in self.rim[large]]
        gained, joining = self.total[small], self.total[large]
        self._add(large, gained)
        self._add(small, joining)
        self._prices[both] -= gained + joining
        self.rim[large].update(self.rim[small])
        self.total[large] += gained
        self.above[small] = large
        self.rim[small] = Counter()

    def _add(self, root: int, seconds: float) -> None:
        """Change the price of everything on the rim of class ``root``."""
        rim = self.rim[root]
        self._prices[np.fromiter(rim, np.int64, len(rim))] += seconds

    def _root(self, number: int) -> int:
        while self.above[number] != number:
            self.above[number] = self.above[self.above[number]]
            number = self.above[number]
        return number
