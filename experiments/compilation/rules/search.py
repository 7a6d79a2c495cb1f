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
        """Changes of ``state`` expected to cost less than ``below``; others may be left out."""
        ...


@dataclass
class Statistics:
    """``explored`` states were expanded; successors were ``pruned`` by cost or size, ``duplicate``, or ``rejected``
    because they could not be built."""

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


def search(
    space: Space[State], start: State, limits: Limits, progress: Progress = silent
) -> tuple[State, Statistics]:
    """The cheapest state found, ``start`` if none is cheaper."""
    began = time.monotonic()
    statistics = Statistics()
    best, best_cost = start, space.cost(start)
    most = limits.growth * space.size(start)
    number = itertools.count()
    queue: list[tuple[float, int, Successor[State]]] = [
        (best_cost, next(number), Successor(best_cost, lambda: start))
    ]
    seen: set[Hashable] = set()

    def too_dear(exact: float) -> bool:
        """Whether a state of this cost is too dear beside the best that is known now."""
        return limits.recheck and exact >= limits.alpha * best_cost

    for state in _cheapest(space, queue, seen, too_dear, most, statistics):
        cost = space.cost(state)
        if cost < best_cost:
            best, best_cost = state, cost
            statistics.improved += 1
        if statistics.explored >= limits.budget or time.monotonic() - began > limits.seconds:
            break
        statistics.explored += 1
        progress(statistics.explored / limits.budget, f"{statistics.explored} graphs, best {best_cost:.3g} s")
        for successor in space.successors(state, limits.alpha * best_cost):
            if successor.cost < limits.alpha * best_cost:
                heapq.heappush(queue, (successor.cost, next(number), successor))
            else:
                statistics.pruned += 1
    statistics.seconds = time.monotonic() - began
    return best, statistics


def _cheapest(
    space: Space[State],
    queue: list[tuple[float, int, Successor[State]]],
    seen: set[Hashable],
    too_dear: Callable[[float], bool],
    most: float,
    statistics: Statistics,
) -> Iterator[State]:
    """States to expand, the cheapest first, each once; the start is never pruned."""
    while queue:
        predicted, number, successor = heapq.heappop(queue)
        if number and too_dear(predicted):
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
        if number and (too_dear(space.cost(state)) or space.size(state) >= most):
            statistics.pruned += 1
            continue
        yield state
