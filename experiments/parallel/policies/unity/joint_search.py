"""Unity's search: substitutions and placement together, on pieces of the graph between operators that all
paths cross.

Source: Unger et al. (Unity), OSDI'22, section 5, and the released ``substitution.cc`` and ``model.cc``. Large
graphs are cut at such operators into pieces of about ``threshold`` operators; for each candidate layout of
the operators at the cuts the pieces are searched on their own, and a dynamic program puts the best of them
together. A piece is searched best first: the cheapest graph leaves the queue, all its substitutions that cost
less than ``alpha`` times the best are put in, graphs that were seen are not, and the search ends with its
budget or when nothing in the queue is that cheap.
"""

from __future__ import annotations

import heapq
import itertools
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from experiments.core.budget import Budget
from experiments.parallel.planning.operators.operator_costs import CostTables
from experiments.parallel.policies.unity.placement import OperatorBranch, PlacedBranches, place_branches
from experiments.workloads.step import Floats

#: One choice (its index) for each operator of a piece, in order.
Graph = tuple[int, ...]

#: Pieces of up to so many times the threshold are searched whole.
WHOLE_PIECE = 4


@dataclass(frozen=True)
class JointSearchLimits:
    """Bounds of the search.

    - ``alpha``: how much worse than the best a graph may be that is searched further.
    - ``budget``: graphs that may leave the queue for each piece and pair of layouts.
    - ``threshold``: operators of a piece.
    - ``layouts``: of a cut.
    """

    alpha: float
    budget: int
    threshold: int
    layouts: int


@dataclass
class JointSearchResult:
    """One choice and first device for every operator, the seconds, and what was looked at."""

    seconds: float
    choices: list[int]
    firsts: list[int]
    pieces: int = 0
    popped: int = 0
    seen: int = 0
    side_by_side: int = 0


@dataclass
class JointSearchSpace:
    """Costs and substitutions of a whole graph.

    - ``far[i, j]``: transfers to j's choices when none of it is local.
    - ``rewrites[i][c]``: the choices that one substitution makes of choice ``c``.
    - ``start[i]``: where the search begins.
    """

    tables: CostTables
    far: Mapping[tuple[int, int], Floats]
    rewrites: Sequence[Sequence[tuple[int, ...]]]
    start: Sequence[int]
    devices: int
    into: dict[int, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.into = {number: [] for number in range(len(self.tables.nodes))}
        for source, reader in self.tables.edges:
            self.into[reader].append(source)


def cuts(space: JointSearchSpace) -> list[int]:
    """Return the operators that no edge passes by, first and last included."""
    furthest = list(range(len(space.tables.nodes)))
    for source, reader in space.tables.edges:
        furthest[source] = max(furthest[source], reader)
    reach = itertools.accumulate([0, *furthest[:-1]], max)
    return [number for number, passed in enumerate(reach) if passed <= number]


def joint_search(
    space: JointSearchSpace, limits: JointSearchLimits, budget: Budget | None = None
) -> JointSearchResult:
    """Return the best graph that was found, put together from its pieces.

    Graphs that are looked at are taken from ``budget``.
    """
    budget = budget or Budget(sys.maxsize)
    ends = _ends(cuts(space), limits.threshold)
    layouts = {end: _layouts(space, end, limits.layouts) for end in ends}
    result = JointSearchResult(math.inf, [], [])
    first = ends[0]
    best: dict[int, tuple[float, list[int], list[int]]] = {
        layout: (float(space.tables.nodes[first][layout]), [layout], [0]) for layout in layouts[first]
    }
    for number, (begin, end) in enumerate(itertools.pairwise(ends)):
        piece = GraphPiece(space, begin, end, budget)
        after: dict[int, tuple[float, list[int], list[int]]] = {}
        for before, layout in itertools.product(layouts[begin], layouts[end]):
            seconds, inside, firsts = piece.search(before, layout, limits, result)
            seconds += best[before][0] + float(space.tables.nodes[end][layout])
            if layout not in after or seconds < after[layout][0]:
                after[layout] = (seconds, [*best[before][1], *inside, layout], [*best[before][2], *firsts, 0])
        best, result.pieces = after, number + 1
    result.seconds, result.choices, result.firsts = min(best.values(), key=lambda entry: entry[0])
    result.side_by_side = sum(first > 0 for first in result.firsts)
    return result


def _ends(found: Sequence[int], threshold: int) -> list[int]:
    """Cuts so far apart that a piece has up to ``threshold`` operators, or as few as there can be."""
    ends = [found[0]]
    for number, cut in enumerate(found[1:], 1):
        if number == len(found) - 1 or found[number + 1] - ends[-1] - 1 > threshold:
            ends.append(cut)
    return ends


def _layouts(space: JointSearchSpace, number: int, most: int) -> list[int]:
    """The choices of a cut that cost least with the best transfers around it; where the search begins is one
    of them.
    """
    least = space.tables.nodes[number].copy()
    for (source, reader), table in space.tables.edges.items():
        if reader == number:
            least += table.min(axis=0)
        elif source == number:
            least += table.min(axis=1)
    order = [int(choice) for choice in np.argsort(least, kind="stable") if choice != space.start[number]]
    return [space.start[number], *order[: most - 1]]


class OperatorShare(NamedTuple):
    """What one operator adds to the seconds of its branch.

    - ``alone``: the operator with all transfers to and from it.
    - ``twice``: transfers to readers of the piece, which count these too.
    - ``more``: what transfers from and to the cuts cost more from afar.
    """

    alone: float
    twice: float
    more: float


class GraphPiece:
    """The operators between two cuts."""

    def __init__(self, space: JointSearchSpace, begin: int, end: int, budget: Budget) -> None:
        self.space, self.begin, self.end, self._budget = space, begin, end, budget
        self.inside = range(begin + 1, end)
        self.branches = self._branches()
        tables = space.tables
        self._nodes = {number: tables.nodes[number].tolist() for number in self.inside}
        self._edges: dict[tuple[int, int], list[list[float]]] = {}
        for j in range(begin + 1, end + 1):
            self._edges |= {(i, j): tables.edges[i, j].tolist() for i in space.into[j]}
            budget.report()
        self._readers: dict[int, list[int]] = {number: [] for number in self.inside}
        for i, j in self._edges:
            if i != begin:
                self._readers[i].append(j)
        self._branch_of = {n: number for number, branch in enumerate(self.branches) for n in branch}
        self._far = {pair: space.far[pair].tolist() for pair in self._edges}
        self._parts = {n: [math.prod(c) for c in tables.choices[n]] for n in self.inside}

    def _branches(self) -> list[list[int]]:
        """Operators that are joined without the cuts."""
        found: list[set[int]] = []
        for number in self.inside:
            around = {other for other in self.space.into[number] if other in self.inside} | {number}
            joined = [branch for branch in found if branch & around]
            found = [branch for branch in found if not branch & around] + [around.union(*joined)]
        return sorted(sorted(branch) for branch in found)

    def search(
        self, before: int, after: int, limits: JointSearchLimits, result: JointSearchResult
    ) -> tuple[float, Graph, tuple[int, ...]]:
        """Return the seconds of the piece without its cuts, its choices and their first devices.

        A piece that no operator cuts is searched in runs of ``threshold`` operators, the others as they are
        by then; the budget is shared by the runs.
        """
        chosen = {number: self.space.start[number] for number in self.inside}
        chosen |= {self.begin: before, self.end: after}
        runs = [self.inside[i : i + limits.threshold] for i in range(0, len(self.inside), limits.threshold)]
        if len(self.inside) <= WHOLE_PIECE * limits.threshold:
            runs = [self.inside] if self.inside else []
        shares = {number: self.share(number, chosen) for number in self.inside}
        for run in runs:
            branches, most = self._branches_of(chosen, shares), max(2, limits.budget // len(runs))
            best = self._best_first(run, chosen, branches, limits, most, result)
            chosen |= zip(run, best, strict=True)
            shares |= {number: self.share(number, chosen) for number in self.touched_by(run)}
        placement = self._place(self._branches_of(chosen, shares))
        between = (
            self._edges[self.begin, self.end][before][after] if (self.begin, self.end) in self._edges else 0.0
        )
        inside = tuple(chosen[number] for number in self.inside)
        return placement.seconds + between, inside, self._firsts(placement)

    def _best_first(
        self,
        run: Sequence[int],
        fixed: Mapping[int, int],
        branches: Sequence[OperatorBranch],
        limits: JointSearchLimits,
        budget: int,
        result: JointSearchResult,
    ) -> Graph:
        """The best choices of ``run`` that were found; ``branches`` are those of ``fixed``."""
        best = tuple(fixed[number] for number in run)
        least = self._place(branches).seconds
        queue, seen = [(least, best, branches)], {best}
        for _ in range(budget):
            if not queue or queue[0][0] > limits.alpha * least or not self._budget.take(0):
                break
            _, graph, branches = heapq.heappop(queue)
            result.popped += 1
            for following, changed in self._substitutions(run, graph, branches, fixed, seen):
                self._budget.spend(1)
                seconds = self._place(changed).seconds
                if seconds < limits.alpha * least:
                    heapq.heappush(queue, (seconds, following, changed))
                if seconds < least:
                    best, least = following, seconds
        result.seen += len(seen)
        return best

    def _substitutions(
        self,
        run: Sequence[int],
        graph: Graph,
        branches: Sequence[OperatorBranch],
        fixed: Mapping[int, int],
        seen: set[Graph],
    ) -> Iterator[tuple[Graph, list[OperatorBranch]]]:
        """Graphs that were not seen and that one substitution makes, with their branches, of which one
        changes.
        """
        chosen = {**fixed, **dict(zip(run, graph, strict=True))}
        for place, number in enumerate(run):
            self._budget.report()
            which = self._branch_of[number]
            branch = branches[which]
            near, extra = self._around(number, chosen[number], chosen)
            others = self._widest(number, chosen)
            for choice in self.space.rewrites[number][chosen[number]]:
                following = (*graph[:place], choice, *graph[place + 1 :])
                if following in seen:
                    continue
                seen.add(following)
                now, more = self._around(number, choice, chosen)
                moved = OperatorBranch(
                    branch.near + now - near,
                    branch.far + now + more - near - extra,
                    max(self._parts[number][choice], others),
                )
                yield following, [*branches[:which], moved, *branches[which + 1 :]]

    def _widest(self, number: int, chosen: Mapping[int, int]) -> int:
        """Devices that the other operators of a branch need; nobody asks where there is one branch."""
        if len(self.branches) == 1:
            return 1
        branch = self.branches[self._branch_of[number]]
        return max((self._parts[n][chosen[n]] for n in branch if n != number), default=1)

    def _place(self, branches: Sequence[OperatorBranch]) -> PlacedBranches:
        return place_branches(branches, self.space.devices)

    def _firsts(self, placement: PlacedBranches) -> tuple[int, ...]:
        return tuple(placement.firsts[self._branch_of[number]] for number in self.inside)

    def _branches_of(
        self, chosen: Mapping[int, int], shares: Mapping[int, OperatorShare]
    ) -> list[OperatorBranch]:
        return [self._branch(branch, chosen, shares) for branch in self.branches]

    def _branch(
        self, branch: Sequence[int], chosen: Mapping[int, int], shares: Mapping[int, OperatorShare]
    ) -> OperatorBranch:
        """Operators, transfers among them and from and to the cuts; from afar these two cost more."""
        near = extra = 0.0
        for number in branch:
            alone, twice, more = shares[number]
            near, extra = near + alone - twice, extra + more
        parts = max(self._parts[number][chosen[number]] for number in branch)
        return OperatorBranch(near, near + extra, parts)

    def share(self, number: int, chosen: Mapping[int, int]) -> OperatorShare:
        """Return what operator ``number`` adds to its branch."""
        alone, more = self._around(number, chosen[number], chosen)
        twice = sum(
            self._edges[number, reader][chosen[number]][chosen[reader]]
            for reader in self._readers[number]
            if reader != self.end
        )
        return OperatorShare(alone, twice, more)

    def touched_by(self, run: Sequence[int]) -> set[int]:
        """Return the operators whose shares a change of ``run`` changes: its own and their neighbors."""
        around = {other for number in run for other in (*self.space.into[number], *self._readers[number])}
        return {*run, *around} - {self.begin, self.end}

    def _around(self, number: int, choice: int, chosen: Mapping[int, int]) -> tuple[float, float]:
        """An operator with all transfers to and from it, and what those with the cuts cost more from afar."""
        near, extra = self._nodes[number][choice], 0.0
        for source in self.space.into[number]:
            moved = self._edges[source, number][chosen[source]][choice]
            near += moved
            if source == self.begin:
                extra += max(0.0, self._far[source, number][choice] - moved)
        for reader in self._readers[number]:
            moved = self._edges[number, reader][choice][chosen[reader]]
            near += moved
            if reader == self.end:
                extra += max(0.0, self._far[number, reader][chosen[reader]] - moved)
        return near, extra
