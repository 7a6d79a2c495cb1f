"""Unity's search: parallel and algebraic substitutions and placement together, on pieces of the graph between
operators that all paths cross.

Source: Unger et al. (Unity), OSDI'22, section 5, and the released ``substitution.cc`` and ``model.cc``. Large
graphs are cut at such operators into pieces of about ``threshold`` operators; for each candidate layout of
the operators at the cuts the pieces are searched on their own, and a dynamic program puts the best of them
together. A piece is searched best first: the cheapest graph leaves the queue, all its substitutions that cost
less than ``alpha`` times the best are put in, graphs that were seen are not, and the search ends with its
budget or when nothing in the queue is that cheap. Both sorts of substitutions make graphs of one queue: a
parallel one divides an operator otherwise, an algebraic one puts other operators in the place of some, which
begin with the divisions of those. Pieces end at operators that no algebraic substitution takes out, as in the
released code, where there are any within reach.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Collection, Sequence

import numpy as np

from experiments.core.budget import Budget
from experiments.parallel.policies.unity.graph_piece import GraphPiece
from experiments.parallel.policies.unity.search_space import (
    WHOLE_PIECE,
    JointSearchLimits,
    JointSearchResult,
    JointSearchSpace,
    PlacedGraph,
)


def cuts(space: JointSearchSpace) -> list[int]:
    """Return the operators that no edge passes by, first and last included."""
    furthest = list(range(space.own))
    for source, reader in space.tables.edges:
        if max(source, reader) < space.own:
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
    taken = frozenset().union(*(rewriting.covers for rewriting in space.algebraic))
    ends = _ends(_outside(cuts(space), taken, WHOLE_PIECE * limits.threshold), limits.threshold)
    layouts = {end: _layouts(space, end, limits.layouts) for end in ends}
    result = JointSearchResult(float("inf"), [], [])
    first = ends[0]
    best = {
        layout: PlacedGraph(float(space.tables.nodes[first][layout]), [first], [layout], [0])
        for layout in layouts[first]
    }
    for number, (begin, end) in enumerate(itertools.pairwise(ends)):
        piece = GraphPiece(space, begin, end, budget)
        after: dict[int, PlacedGraph] = {}
        for before, layout in itertools.product(layouts[begin], layouts[end]):
            found = piece.search(before, layout, limits, result)
            seconds = found.seconds + (best[before].seconds + float(space.tables.nodes[end][layout]))
            if layout not in after or seconds < after[layout].seconds:
                after[layout] = best[before].followed_by(found, end, layout, seconds)
        best, result.pieces = after, number + 1
    least = min(best.values(), key=lambda graph: graph.seconds)
    result.seconds, result.numbers, result.choices, result.firsts = least
    result.side_by_side = sum(first > 0 for first in result.firsts)
    return result


def _outside(found: Sequence[int], taken: Collection[int], most: int) -> list[int]:
    """Cuts that no algebraic substitution takes out, and of the others those that longer pieces need."""
    kept = [found[0]]
    for number, cut in enumerate(found[1:], 1):
        last = number == len(found) - 1
        if cut not in taken or last or found[number + 1] - kept[-1] - 1 > most:
            kept.append(cut)
    return kept


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
        if max(source, reader) >= space.own:
            continue
        if reader == number:
            least += table.min(axis=0)
        elif source == number:
            least += table.min(axis=1)
    begun = [space.start[number], *space.seed[number : number + 1]]
    order = [int(choice) for choice in np.argsort(least, kind="stable")]
    return list(dict.fromkeys((*begun, *order)))[: max(most, len(set(begun)))]
