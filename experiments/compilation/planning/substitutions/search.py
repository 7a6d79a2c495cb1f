"""Cost-based backtracking search (TASO, SOSP'19, algorithm 2; MetaFlow, SysML'19, algorithm 1), over any space.

A queue of states by cost; the cheapest is expanded; a successor is kept if it costs less than ``alpha`` times the best
then known. What the published code leaves open: the budget counts expansions, 0 returns the start; successors wait with
the cost that a local change predicts and are built, and their exact cost and identity found, only when taken out; ties
go to the one found first. A state may have been kept beside a best that has fallen since: as published it is expanded
all the same, after everything cheaper; with ``recheck`` it is dropped (fewer expansions, and sometimes a dearer end).
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from experiments.core.progress import Progress, silent

State = TypeVar("State")


@dataclass(frozen=True)
class Successor(Generic[State]):
    """``cost`` is what the change is expected to lead to; ``build`` makes the state, or None where it cannot be."""

    cost: float
    build: Callable[[], State | None]


class Space(Protocol[State]):
    """What is searched."""

    def cost(self, state: State) -> float: ...

    def identity(self, state: State) -> Hashable: ...

    def size(self, state: State) -> int: ...

    def successors(self, state: State, below: float) -> Iterable[Successor[State]]:
        """Changes of ``state``, the cheapest first; those expected to cost ``below`` or more may be left out."""
        ...


@dataclass
class Statistics:
    """``explored`` states were expanded; successors were ``pruned`` by cost or size (those of one state that were too
    dear from the start count as one), ``duplicate``, or ``rejected`` because they could not be built.
    """

    explored: int = 0
    pruned: int = 0
    duplicate: int = 0
    rejected: int = 0
    improved: int = 0
    seconds: float = field(default=0.0, compare=False)

    def __add__(self, other: Statistics) -> Statistics:
        names = self.__dataclass_fields__
        return Statistics(**{name: getattr(self, name) + getattr(other, name) for name in names})


@dataclass(frozen=True)
class Limits:
    """``budget`` expansions; nodes fewer than ``growth`` times the start's; ``seconds`` of wall time (inf: none)."""

    alpha: float = 1.0
    budget: int = 1000
    recheck: bool = False
    growth: float = 2.0
    seconds: float = math.inf


class _Queue(Generic[State]):
    """Successors by cost, then by when they were found. Of every expansion only the cheapest one left is held: a state
    may have thousands.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, Successor[State], Iterator[Successor[State]]]] = []
        self._expansions = itertools.count()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, successors: Iterable[Successor[State]]) -> None:
        """What one expansion found, the cheapest first."""
        self._push(next(self._expansions), 0, iter(successors))

    def _push(self, expansion: int, place: int, rest: Iterator[Successor[State]]) -> None:
        successor = next(rest, None)
        if successor is not None:
            heapq.heappush(self._heap, (successor.cost, expansion, place, successor, rest))

    def pop(self) -> Successor[State]:
        _, expansion, place, successor, rest = heapq.heappop(self._heap)
        self._push(expansion, place + 1, rest)
        return successor


def search(
    space: Space[State], start: State, limits: Limits, progress: Progress = silent
) -> tuple[State, Statistics]:
    """The cheapest state found, ``start`` if none is cheaper."""
    began = time.monotonic()
    statistics = Statistics()
    best, best_cost = start, space.cost(start)
    most = limits.growth * space.size(start)
    queue: _Queue[State] = _Queue()

    def too_dear(exact: float) -> bool:
        """Whether a state of this cost is too dear beside the best that is known now."""
        return limits.recheck and exact >= limits.alpha * best_cost

    for state in _cheapest(space, start, queue, too_dear, most, statistics):
        cost = space.cost(state)
        if cost < best_cost:
            best, best_cost = state, cost
            statistics.improved += 1
        if statistics.explored >= limits.budget or time.monotonic() - began > limits.seconds:
            break
        statistics.explored += 1
        progress(statistics.explored / limits.budget, f"{statistics.explored} graphs, best {best_cost:.3g} s")
        below = limits.alpha * best_cost
        queue.add(_below(space.successors(state, below), below, statistics))
    statistics.seconds = time.monotonic() - began
    return best, statistics


def _below(
    successors: Iterable[Successor[State]], below: float, statistics: Statistics
) -> Iterator[Successor[State]]:
    for successor in successors:
        if successor.cost >= below:
            statistics.pruned += 1
            return
        yield successor


def _cheapest(
    space: Space[State],
    start: State,
    queue: _Queue[State],
    too_dear: Callable[[float], bool],
    most: float,
    statistics: Statistics,
) -> Iterator[State]:
    """States to expand, the cheapest first, each once; the start is never pruned."""
    seen = {space.identity(start)}
    yield start
    while queue:
        successor = queue.pop()
        if too_dear(successor.cost):
            statistics.pruned += 1 + len(queue)
            return
        state = successor.build()
        if state is None:
            statistics.rejected += 1
            continue
        identity = space.identity(state)
        if identity in seen:
            statistics.duplicate += 1
            continue
        seen.add(identity)
        if too_dear(space.cost(state)) or space.size(state) >= most:
            statistics.pruned += 1
            continue
        yield state
