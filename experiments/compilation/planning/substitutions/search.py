"""Cost-based backtracking search (TASO, SOSP'19, algorithm 2; MetaFlow, SysML'19, algorithm 1), over any
space.

A queue of states by cost; the cheapest is expanded; a successor is kept if it costs less than ``alpha`` times
the best then known. What the published code leaves open: the budget counts expansions, 0 returns the start;
graphs that are built have a bound of their own, for most of them are never expanded; successors wait with the
cost that a local change predicts and are built, and their exact cost and identity found, only when taken out;
ties go to the one found first. A state may have been kept against a best cost that has fallen since: as
published it is expanded all the same, after everything cheaper; with ``recheck`` it is dropped (fewer
expansions, and sometimes a more expensive end).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from experiments.core.progress import Progress, silent

State = TypeVar("State")


@dataclass(frozen=True)
class Successor(Generic[State]):
    """``cost`` is what the change is expected to lead to.

    ``build`` makes the state, or None where it cannot be.
    """

    cost: float
    build: Callable[[], State | None]


class SearchSpace(Protocol[State]):
    """The rewrites that a search goes through, and what they cost."""

    def cost(self, state: State) -> float: ...

    def identity(self, state: State) -> Hashable: ...

    def size(self, state: State) -> int: ...

    def successors(self, state: State, below: float) -> Iterable[Successor[State]]:
        """Changes of ``state``, the cheapest first.

        Those expected to cost ``below`` or more may be left out.
        """
        ...


@dataclass
class Statistics:
    """``explored`` states were expanded.

    Successors were ``pruned`` by cost or size (those of one state that were too expensive from the start
    count as one), ``duplicate``, or ``rejected`` because they could not be built. ``truncated`` searches
    ended at a bound with graphs left to expand.
    """

    explored: int = 0
    pruned: int = 0
    duplicate: int = 0
    rejected: int = 0
    improved: int = 0
    truncated: int = 0

    def __add__(self, other: Statistics) -> Statistics:
        names = self.__dataclass_fields__
        return Statistics(**{name: getattr(self, name) + getattr(other, name) for name in names})


@dataclass(frozen=True)
class SearchLimits:
    """``budget`` expansions and ``builds`` of graphs; nodes fewer than ``growth`` times the start's."""

    alpha: float = 1.0
    budget: int = 1000
    recheck: bool = False
    growth: float = 2.0
    builds: int = 100_000


class _Queue(Generic[State]):
    """Successors by cost, then by when they were found.

    Of every expansion only the cheapest one left is held: a state may have thousands.
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
    space: SearchSpace[State], start: State, limits: SearchLimits, progress: Progress = silent
) -> tuple[State, Statistics]:
    """Return the cheapest state found, ``start`` if none is cheaper."""
    statistics = Statistics()
    best, best_cost = start, space.cost(start)
    most = limits.growth * space.size(start)
    queue: _Queue[State] = _Queue()

    def too_dear(exact: float) -> bool:
        """Return whether a state of this cost is too expensive against the best known now."""
        return limits.recheck and exact >= limits.alpha * best_cost

    def report() -> None:
        share = statistics.explored / max(limits.budget, 1)
        progress(share, f"{statistics.explored} graphs, best {best_cost:.3g} s")

    builds = _Builds(limits.builds, report)
    for state in _cheapest(space, start, queue, too_dear, most, statistics, builds):
        cost = space.cost(state)
        if cost < best_cost:
            best, best_cost = state, cost
            statistics.improved += 1
        if statistics.explored >= limits.budget:
            statistics.truncated = min(limits.budget, 1)
            break
        statistics.explored += 1
        report()
        below = limits.alpha * best_cost
        queue.add(_below(space.successors(state, below), below, statistics))
    statistics.truncated |= builds.refused
    return best, statistics


class _Builds:
    """Graphs that may still be built; each is reported, for many are built between two that are expanded."""

    def __init__(self, most: int, report: Callable[[], None]) -> None:
        self._left, self._report, self.refused = most, report, False

    def take(self) -> bool:
        self._report()
        self._left -= 1
        self.refused = self._left < 0
        return not self.refused


def _below(
    successors: Iterable[Successor[State]], below: float, statistics: Statistics
) -> Iterator[Successor[State]]:
    for successor in successors:
        if successor.cost >= below:
            statistics.pruned += 1
            return
        yield successor


def _cheapest(
    space: SearchSpace[State],
    start: State,
    queue: _Queue[State],
    too_dear: Callable[[float], bool],
    most: float,
    statistics: Statistics,
    builds: _Builds,
) -> Iterator[State]:
    """States to expand, the cheapest first, each once; the start is never pruned."""
    seen = {space.identity(start)}
    yield start
    while queue:
        successor = queue.pop()
        if too_dear(successor.cost):
            statistics.pruned += 1 + len(queue)
            return
        if not builds.take():
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
