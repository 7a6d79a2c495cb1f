"""Which ops of a compiled graph become one kernel, and which of its tensors are never in memory.

The rule is Inductor's (torch 2.13, ``_inductor/ir.py``, ``scheduler.py``, ``codegen/simd.py``), for a GPU:

- *Inlining.* A pointwise op is not a kernel: its readers compute it. It is given memory when a library's
  routine reads it or it leaves the graph, when it reads more than ``MOST_READS`` tensors, and when two ops or
  more read it and it reads more than ``REUSED_READS`` tensors or stands for more than ``REUSED_OPS`` ops.
  Reductions are always loops of their own.
- *Fusion.* Loops that share a tensor become one kernel: two pointwise ones over as many points; two
  reductions of as many points to as many, both along the last dimensions (rows) or both along others
  (columns); one of rows with pointwise ones over what it reads or over what it makes. Of several choices
  those of one form come first, then those that share most bytes, then those that are close. None where
  another kernel would have to run between the two, none of more than ``LARGEST`` loops, and none where
  neither reads what the other makes and they are more than ``FARTHEST`` loops apart.
- *Memory.* A tensor that only its own kernel reads is never in memory.

Left out: whether two loops visit a tensor in the same order (sizes decide), reductions of one tensor along
different dimensions in one kernel, outputs that take over the memory of an input, and the order of kernels
that saves most memory (here: that of their last ops).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

REUSED_READS, REUSED_OPS, MOST_READS = 4, 30, 8
LARGEST, FARTHEST = 64, 64
POINTWISE, ROWS, COLUMNS, LIBRARY = "pointwise", "rows", "columns", "library"


@dataclass(frozen=True)
class GraphOp:
    """An op of a compiled graph, views left out: what it reads and makes.

    ``points`` are what it goes over, ``results`` how many of them it makes; ``form`` is pointwise, a
    reduction of rows or of columns, or library.
    """

    form: str
    points: int
    results: int
    reads: tuple[int, ...]
    makes: tuple[int, ...]


@dataclass(frozen=True)
class FusedKernel:
    """Ops (ascending) that run as one kernel, the tensors that it reads and those that it writes."""

    ops: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    library: bool


def fuse(graph: Sequence[GraphOp], leaving: Collection[int], size: Mapping[int, int]) -> list[FusedKernel]:
    """Return the kernels of ``graph`` in the order they run; tensors ``leaving`` are read by others.

    ``size`` is each tensor's bytes. What nothing in the graph reads leaves it as well.
    """
    loops = _Inliner(graph, leaving).loops()
    return _Scheduler(loops, leaving, size).kernels()


@dataclass(frozen=True)
class _Loop:
    """A loop nest or a library's routine: it reads and writes memory."""

    form: str
    points: int
    results: int
    ops: frozenset[int]
    reads: frozenset[int]
    makes: frozenset[int]


@dataclass(frozen=True)
class _Inlined:
    """A tensor that is computed where it is read: by op ``op`` and those before it, from what."""

    op: int
    ops: frozenset[int]
    reads: frozenset[int]


class _Inliner:
    """Walks a graph in order and keeps what has no memory so far."""

    def __init__(self, graph: Sequence[GraphOp], leaving: Collection[int]) -> None:
        self.graph = graph
        self._inlined: dict[int, _Inlined] = {}
        self._loops: list[_Loop] = []
        self._users = {tensor: int(tensor in leaving) for row in graph for tensor in row.makes}
        for row in graph:
            for tensor in row.reads:
                self._users[tensor] = self._users.get(tensor, 0) + 1
        self._leaving = leaving

    def loops(self) -> list[_Loop]:
        for op, row in enumerate(self.graph):
            if row.form == LIBRARY:
                self._give_memory(row.reads)
                self._give_memory(self._computed_from(row.makes))
                self._loops.append(self._loop(row, frozenset((op,)), frozenset(row.reads)))
            elif row.form != POINTWISE or len(row.makes) != 1:
                self._loops.append(self._loop(row, *self._inline(op)))
            else:
                self._keep(op)
        unread = [t for t in self._inlined if t in self._leaving or not self._users[t]]
        self._give_memory(unread)
        return self._loops

    def _loop(self, row: GraphOp, ops: frozenset[int], reads: frozenset[int]) -> _Loop:
        return _Loop(row.form, row.points, row.results, ops, reads, frozenset(row.makes))

    def _inline(self, op: int) -> tuple[frozenset[int], frozenset[int]]:
        """The ops that compute ``op`` from memory, and what they read there."""
        ops, reads = {op}, set[int]()
        for tensor in self.graph[op].reads:
            inlined = self._inlined.get(tensor)
            ops |= inlined.ops if inlined else set()
            reads |= inlined.reads if inlined else {tensor}
        return frozenset(ops), frozenset(reads)

    def _keep(self, op: int) -> None:
        tensor = self.graph[op].makes[0]
        ops, reads = self._inline(op)
        self._inlined[tensor] = _Inlined(op, ops, reads)
        reused = self._users[tensor] > 1 and (len(reads) > REUSED_READS or len(ops) > REUSED_OPS)
        if reused or len(reads) > MOST_READS:
            self._give_memory([tensor])

    def _computed_from(self, tensors: Iterable[int]) -> list[int]:
        """What is inlined and reads ``tensors``, which are about to be written over."""
        changed = frozenset(tensors)
        return [tensor for tensor, inlined in self._inlined.items() if inlined.reads & changed]

    def _give_memory(self, tensors: Iterable[int]) -> None:
        for tensor in dict.fromkeys(tensors):
            inlined = self._inlined.pop(tensor, None)
            if inlined is not None:
                row = self.graph[inlined.op]
                self._loops.append(self._loop(row, inlined.ops, inlined.reads))


def _orders(loops: Sequence[_Loop]) -> Iterator[set[int]]:
    """For each loop those it comes after: makers of what it reads, users of what it writes over."""
    writer: dict[int, int] = {}
    users: dict[int, set[int]] = {}
    for i, loop in enumerate(loops):
        made = {writer[tensor] for tensor in loop.reads if tensor in writer}
        yield made.union(*(users.get(tensor, ()) for tensor in loop.makes))
        for tensor in loop.reads | loop.makes:
            users.setdefault(tensor, set()).add(i)
        writer |= dict.fromkeys(loop.makes, i)


class _Scheduler:
    """Fuses loops into kernels; ``_home`` is each loop's kernel, named by one of its loops."""

    def __init__(self, loops: Sequence[_Loop], leaving: Collection[int], size: Mapping[int, int]) -> None:
        self.loops, self.leaving, self.size = loops, leaving, size
        self._home = list(range(len(loops)))
        self._inside = {i: [i] for i in range(len(loops))}
        self._before = list(_orders(loops))

    def kernels(self) -> list[FusedKernel]:
        while self._fuse_once():
            pass
        return [self._kernel(home) for home in self._in_order()]

    def _fuse_once(self) -> bool:
        """Fuse the pairs of kernels that share most, as far as each still may; whether any did."""
        fused = False
        for *_, first, second in sorted(self._pairs()):
            a, b = self._home[first], self._home[second]
            if a != b and self._fit(a, b) and not self._between(a, b) and not self._between(b, a):
                self._merge(a, b)
                fused = True
        return fused

    def _pairs(self) -> list[tuple[bool, int, int, int, int]]:
        """Pairs of kernels that touch the same tensor, best first when sorted.

        Each is: whether their forms differ, less the bytes they share, their distance, and the two.
        """
        touching: dict[int, set[int]] = {}
        for i, loop in enumerate(self.loops):
            for tensor in loop.reads | loop.makes if loop.form != LIBRARY else ():
                touching.setdefault(tensor, set()).add(self._home[i])
        shared: dict[tuple[int, int], int] = {}
        for tensor, homes in touching.items():
            for pair in itertools.combinations(sorted(homes), 2):
                shared[pair] = shared.get(pair, 0) + self.size[tensor]
        return [
            (self._reduces(a) != self._reduces(b), -amount, self._distance(a, b), a, b)
            for (a, b), amount in shared.items()
            if amount and (self._distance(a, b) <= FARTHEST or b in self._needs(a) or a in self._needs(b))
        ]

    def _reduces(self, home: int) -> bool:
        return any(self.loops[i].form != POINTWISE for i in self._inside[home])

    def _distance(self, a: int, b: int) -> int:
        """Loops between the ends of two kernels that are farthest from one another."""
        first, second = self._inside[a], self._inside[b]
        return max(abs(min(first) - max(second)), abs(min(second) - max(first)))

    def _fit(self, a: int, b: int) -> bool:
        loops = [self.loops[i] for i in (*self._inside[a], *self._inside[b])]
        shapes = {(loop.form, loop.points, loop.results) for loop in loops if loop.form != POINTWISE}
        points = {loop.points for loop in loops if loop.form == POINTWISE}
        if len(loops) > LARGEST or len(shapes) > 1:
            return False
        if not shapes:
            return len(points) == 1
        ((form, *over),) = shapes
        return points <= set(over) if form == ROWS else not points

    def _between(self, first: int, last: int) -> bool:
        """Whether ``last`` needs a kernel that needs ``first``."""
        todo = [home for home in self._needs(last) if home != first]
        seen = set(todo)
        while todo:
            for home in self._needs(todo.pop()):
                if home == first:
                    return True
                if home not in seen:
                    seen.add(home)
                    todo.append(home)
        return False

    def _needs(self, home: int) -> set[int]:
        return {self._home[j] for i in self._inside[home] for j in self._before[i]} - {home}

    def _merge(self, a: int, b: int) -> None:
        for loop in self._inside[b]:
            self._home[loop] = a
        self._inside[a] += self._inside.pop(b)

    def _in_order(self) -> list[int]:
        """Kernels after those they need, the one whose last op comes first before others."""
        last = {home: max(max(self.loops[i].ops) for i in inside) for home, inside in self._inside.items()}
        needs = {home: self._needs(home) for home in self._inside}
        ready = [(last[home], home) for home, needed in needs.items() if not needed]
        heapq.heapify(ready)
        found = []
        while ready:
            _, home = heapq.heappop(ready)
            found.append(home)
            for other, needed in needs.items():
                if home in needed:
                    needed.discard(home)
                    if not needed:
                        heapq.heappush(ready, (last[other], other))
        return found

    def _kernel(self, home: int) -> FusedKernel:
        inside = [self.loops[i] for i in self._inside[home]]
        made = set().union(*(loop.makes for loop in inside))
        read_elsewhere = {t for i, loop in enumerate(self.loops) if self._home[i] != home for t in loop.reads}
        read = set().union(*(loop.reads for loop in inside))
        library = inside[0].form == LIBRARY
        writes = {t for t in made if library or t in self.leaving or t in read_elsewhere or t not in read}
        ops = set().union(*(loop.ops for loop in inside))
        return FusedKernel(
            tuple(sorted(ops)),
            tuple(sorted(read - made)),
            tuple(sorted(writes)),
            library,
        )
