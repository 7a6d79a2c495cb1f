"""The cheapest graph in an e-graph.

Which call computes each class, each class once however often it is read.

An integer program (as TENSAT's, Yang et al., MLSys'21, section 5.2, in our own terms): a binary for every
call; a root's class has a chosen call, a chosen call's inputs have one each, and on a cycle of classes chosen
calls go up in rank. The sum of prices is what the graph costs (DAG cost, not tree cost). HiGHS solves it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from experiments.core.integer_programs import minimize
from experiments.core.progress import Progress, run_reporting, silent

if TYPE_CHECKING:
    from scipy.optimize import LinearConstraint

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class TermChoice(Generic[Name]):
    """A call that computes a class: what it ``reads``, its ``cost`` in seconds, and who it is."""

    name: Name
    reads: tuple[int, ...]
    cost: float


@dataclass(frozen=True)
class Extracted(Generic[Name]):
    """The choice of every class that is needed, inputs first; ``proved`` if no cheaper selection exists."""

    chosen: Mapping[int, TermChoice[Name]]
    cost: float
    proved: bool


def extract(
    choices: Mapping[int, Sequence[TermChoice[Name]]],
    roots: Sequence[int],
    nodes: int = 10_000,
    progress: Progress = silent,
) -> Extracted[Name] | None:
    """Return the cheapest selection that computes ``roots``.

    None where none was found in ``nodes`` of branch and bound.
    """
    program = _Program(choices, roots)
    picked = run_reporting(lambda: program.solve(nodes), lambda: progress(0.0, ""))
    if picked is None:
        return None
    active: dict[int, TermChoice[Name]] = {}
    for place in np.flatnonzero(picked.x[: len(program.flat)] > 0.5):
        owner, choice = program.flat[place]
        if owner not in active or choice.cost < active[owner].cost:
            active[owner] = choice
    ordered = _inputs_first(active, roots)
    return Extracted(ordered, sum(choice.cost for choice in ordered.values()), picked.status == 0)


def _inputs_first(
    active: Mapping[int, TermChoice[Name]], roots: Sequence[int]
) -> dict[int, TermChoice[Name]]:
    found: dict[int, TermChoice[Name]] = {}
    waiting = [(root, False) for root in reversed(roots)]
    while waiting:
        owner, ready = waiting.pop()
        if ready:
            found[owner] = active[owner]
        elif owner not in found:
            waiting.append((owner, True))
            waiting += [(source, False) for source in reversed(active[owner].reads) if source not in found]
    return found


class _Program(Generic[Name]):
    """Columns: a binary for each choice, then a rank for each class that is part of a cycle."""

    def __init__(self, choices: Mapping[int, Sequence[TermChoice[Name]]], roots: Sequence[int]) -> None:
        needed = _reachable(choices, roots)
        self.flat = [(owner, choice) for owner in needed for choice in choices[owner]]
        self.of: dict[int, list[int]] = defaultdict(list)
        for place, (owner, _) in enumerate(self.flat):
            self.of[owner].append(place)
        component = self._components(needed)
        self.inner = [
            (place, source)
            for place, (owner, choice) in enumerate(self.flat)
            for source in dict.fromkeys(choice.reads)
            if component[source] == component[owner]
        ]
        cyclic = {owner for place, source in self.inner for owner in (self.flat[place][0], source)}
        self.rank = {owner: len(self.flat) + n for n, owner in enumerate(sorted(cyclic))}
        self.roots = sorted(set(roots))

    def _components(self, needed: Sequence[int]) -> Mapping[int, int]:
        # Here and below, because loading it takes longer than most runs.
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        place = {owner: n for n, owner in enumerate(needed)}
        pairs = [(place[owner], place[source]) for owner, choice in self.flat for source in choice.reads]
        rows, columns = zip(*pairs, strict=True) if pairs else ((), ())
        graph = coo_array((np.ones(len(pairs)), (rows, columns)), shape=(len(needed),) * 2)
        labels = connected_components(graph, connection="strong")[1]
        return {owner: int(labels[n]) for owner, n in place.items()}

    def _constraints(self) -> LinearConstraint:
        """Return all of the form: sum of coefficients times columns >= bound."""
        from scipy.optimize import LinearConstraint
        from scipy.sparse import coo_array

        rows: list[tuple[dict[int, float], float]] = [
            (dict.fromkeys(self.of[root], 1.0), 1.0) for root in self.roots
        ]
        for place, (_, choice) in enumerate(self.flat):
            for source in dict.fromkeys(choice.reads):
                row = dict.fromkeys(self.of[source], 1.0)
                row[place] = row.get(place, 0.0) - 1.0
                rows.append((row, 0.0))
        high = float(len(self.rank))
        for place, source in self.inner:  # rank(owner) >= rank(source) + 1 where the choice is taken
            owner = self.flat[place][0]
            if owner == source:
                rows.append(({place: -1.0}, 0.0))
            else:
                rows.append(({self.rank[owner]: 1.0, self.rank[source]: -1.0, place: -high}, 1.0 - high))
        entries = [(n, column, value) for n, (row, _) in enumerate(rows) for column, value in row.items()]
        numbers, columns, values = zip(*entries, strict=True)
        shape = (len(rows), len(self.flat) + len(self.rank))
        return LinearConstraint(
            coo_array((values, (numbers, columns)), shape=shape).tocsr(), [b for _, b in rows]
        )

    def solve(self, nodes: int) -> _Result | None:
        from scipy.optimize import Bounds

        columns = len(self.flat) + len(self.rank)
        cost = np.zeros(columns)
        cost[: len(self.flat)] = [choice.cost for _, choice in self.flat]
        scale = cost.max() or 1.0  # seconds are too small for the solver's tolerances
        upper = np.ones(columns)
        upper[len(self.flat) :] = len(self.rank)
        whole = np.arange(columns) < len(self.flat)
        found = minimize(
            cost / scale,
            constraints=self._constraints(),
            bounds=Bounds(0, upper),
            integrality=whole.astype(int),
            options={"node_limit": nodes, "mip_rel_gap": 0.0},
        )
        return None if found.x is None else _Result(found.x, int(found.status))


@dataclass(frozen=True)
class _Result:
    x: npt.NDArray[np.float64]
    status: int


def _reachable(choices: Mapping[int, Sequence[TermChoice[Name]]], roots: Sequence[int]) -> list[int]:
    found = dict.fromkeys(roots)
    waiting = list(found)
    while waiting:
        for choice in choices[waiting.pop()]:
            fresh = [source for source in choice.reads if source not in found]
            found.update(dict.fromkeys(fresh))
            waiting += dict.fromkeys(fresh)
    return list(found)
