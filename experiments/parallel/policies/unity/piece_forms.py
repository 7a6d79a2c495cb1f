"""What the forms of a piece of Unity's graph have in common, and the graphs of a queue."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from experiments.parallel.policies.unity.placement import OperatorBranch
from experiments.parallel.policies.unity.search_space import Graph, JointSearchSpace


class OperatorShare(NamedTuple):
    """What one operator adds to the seconds of its branch.

    - ``alone``: the operator with all transfers to and from it.
    - ``twice``: transfers to readers of the piece, which count these too.
    - ``more``: what transfers from and to the cuts cost more from afar.
    """

    alone: float
    twice: float
    more: float


Shares = Mapping[int, OperatorShare]


class PieceState(NamedTuple):
    """A graph in the queue: ``graph`` has the choices of ``run``, operators of the form with ``inside``.

    Of equally fast graphs the first by its choices, then by its operators, leaves the queue first.
    """

    seconds: float
    graph: Graph
    run: Graph
    inside: Graph
    branches: Sequence[OperatorBranch]


class PieceForms:
    """What the forms of a piece share: tables as lists, and the algebraic substitutions inside it."""

    def __init__(self, space: JointSearchSpace, begin: int, end: int) -> None:
        self._space, self._begin, self._end = space, begin, end
        self.algebraic = [
            rewriting
            for rewriting in space.algebraic
            if all(begin < number < end for number in rewriting.covers)
        ]
        self.node = functools.cache(lambda number: space.tables.nodes[number].tolist())
        self.parts = functools.cache(lambda number: [math.prod(c) for c in space.tables.choices[number]])
        self.edge = functools.cache(lambda i, j: space.tables.edges[i, j].tolist())
        self.far = functools.cache(lambda i, j: space.far[i, j].tolist())
        self._tuples: dict[tuple[int, ...], tuple[int, ...]] = {}

    def same(self, numbers: Iterable[int]) -> tuple[int, ...]:
        """Return the one tuple of these numbers that all forms have: of large pieces there are thousands."""
        found = tuple(numbers)
        return self._tuples.setdefault(found, found)

    def seconds(
        self, numbers: Collection[int], live: Collection[int], chosen: Mapping[int, int]
    ) -> tuple[float, float]:
        """Return the seconds of operators with all transfers to and from them in the graph of ``live`` ones.

        And what transfers with the cuts cost more from afar.
        """
        near, extra = sum(self.node(number)[chosen[number]] for number in numbers), 0.0
        edges = {(i, number) for number in numbers for i in self._space.into[number] if i in live}
        edges |= {
            (number, j) for number in numbers for j in self._space.out[number] if j in live or j == self._end
        }
        for i, j in sorted(edges):
            moved = self.edge(i, j)[chosen[i]][chosen[j]]
            near += moved
            if i == self._begin or j == self._end:
                extra += max(0.0, self.far(i, j)[chosen[j]] - moved)
        return near, extra
