"""What Unity's search goes over and returns: costs, both sorts of substitutions, limits, graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from experiments.parallel.planning.operators.operator_costs import CostTables
from experiments.parallel.policies.unity.algebra import Rewriting
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
    """One choice and first device for every operator of the graph, the seconds, and what was looked at.

    ``numbers`` are these operators; those that substitutions took out are not among them.
    """

    seconds: float
    choices: list[int]
    firsts: list[int]
    numbers: list[int] = field(default_factory=list)
    pieces: int = 0
    popped: int = 0
    seen: int = 0
    side_by_side: int = 0


@dataclass
class JointSearchSpace:
    """Costs and substitutions of a whole graph.

    - ``far[i, j]``: transfers to j's choices when none of it is local.
    - ``rewrites[i][c]``: the choices that one parallel substitution makes of choice ``c``.
    - ``start[i]``: where the search begins.
    - ``own``: the first so many operators are the model's, the others those of algebraic substitutions; an
      edge is in a graph where both its ends are. All where nothing else is said.
    - ``algebraic``: the algebraic substitutions.
    - ``seed``: choices of the model's operators with which the search begins too, where given.
    - ``inherited[i, j][c]``: the choice with which ``j`` begins in the place of ``i`` with choice ``c``.
    """

    tables: CostTables
    far: Mapping[tuple[int, int], Floats]
    rewrites: Sequence[Sequence[tuple[int, ...]]]
    start: Sequence[int]
    devices: int
    own: int = 0
    algebraic: Sequence[Rewriting] = ()
    inherited: Mapping[tuple[int, int], Sequence[int]] = field(default_factory=dict)
    seed: Sequence[int] = ()
    into: dict[int, list[int]] = field(init=False)
    out: dict[int, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.own = self.own or len(self.tables.nodes)
        self.into = {number: [] for number in range(len(self.tables.nodes))}
        self.out = {number: [] for number in range(len(self.tables.nodes))}
        for source, reader in self.tables.edges:
            self.into[reader].append(source)
            self.out[source].append(reader)


class PlacedGraph(NamedTuple):
    """Seconds of a part of the graph, its operators, and the choice and first device of each."""

    seconds: float
    numbers: list[int]
    choices: list[int]
    firsts: list[int]

    def followed_by(self, other: PlacedGraph, end: int, layout: int, seconds: float) -> PlacedGraph:
        """Return this part, then ``other`` and the cut ``end`` behind it."""
        return PlacedGraph(
            seconds,
            [*self.numbers, *other.numbers, end],
            [*self.choices, *other.choices, layout],
            [*self.firsts, *other.firsts, 0],
        )


def in_turn_seconds(tables: CostTables, numbers: Sequence[int], choices: Sequence[int]) -> float:
    """Return what a graph costs whose operators follow each other: they, and the edges between them."""
    chosen = dict(zip(numbers, choices, strict=True))
    own = sum(float(tables.nodes[number][choice]) for number, choice in chosen.items())
    edges = ((i, j) for i, j in tables.edges if i in chosen and j in chosen)
    return own + sum(float(tables.edges[i, j][chosen[i], chosen[j]]) for i, j in edges)
