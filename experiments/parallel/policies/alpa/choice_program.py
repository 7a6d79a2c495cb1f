"""One choice for each node of a graph, least in the cost of nodes and edges: an integer program solved by
HiGHS.

Source: Zheng et al., "Alpa: Automating Inter- and Intra-Operator Parallelism for Distributed Deep Learning",
OSDI'22, section 4.2: one-hot vectors s, and for each edge a vector e that stands for the product of two of
them; e may be fractions, since it is whole where s is. Rows (columns) of an edge's matrix that are equal
share their entries of e.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from experiments.core.progress import Progress, silent
from experiments.memory.planning.milp import MixedIntegerProgram, NodeBound
from experiments.workloads.step import Floats

Ints = npt.NDArray[np.int64]
#: What a first guess costs beyond the unavoidable, after scaling: HiGHS's tolerances are absolute.
SCALE = 1000.0


@dataclass(frozen=True)
class ChoiceProblem:
    """One choice for each node with the least cost of nodes and edges, within a capacity.

    - ``nodes[v][i]``: cost of choice i of node v.
    - ``edges[u, v][i, j]``: cost of choices i and j together, u before v.

    ``memory[v][i]`` adds up to at most ``capacity``. ``alike`` are pairs of nodes with a label for each of
    their choices: chosen labels must be equal.
    """

    nodes: Sequence[Floats]
    edges: Mapping[tuple[int, int], Floats]
    memory: Sequence[Floats] = ()
    capacity: float = np.inf
    alike: Sequence[tuple[int, int, Sequence[object], Sequence[object]]] = field(default=())

    def cost(self, chosen: Sequence[int]) -> float:
        nodes = sum(float(costs[chosen[v]]) for v, costs in enumerate(self.nodes))
        return nodes + sum(float(m[chosen[u], chosen[v]]) for (u, v), m in self.edges.items())

    def bytes(self, chosen: Sequence[int]) -> float:
        return sum(float(column[chosen[v]]) for v, column in enumerate(self.memory))


@dataclass(frozen=True)
class ChoiceSolution:
    """The choice of each node and its cost.

    ``proven`` within the solver's gap; ``variables`` and ``rows`` are the sizes of the program.
    """

    choices: tuple[int, ...]
    cost: float
    proven: bool
    variables: int
    rows: int


def solve(problem: ChoiceProblem, nodes: int, progress: Progress = silent) -> ChoiceSolution | None:
    """Return the cheapest choice found; ``None`` where none keeps to the capacity.

    The search has at most ``nodes`` branch-and-bound nodes.
    """
    written = _Written(problem)
    found = written.program.solve(NodeBound(nodes, progress, is_timed=False), gap=1e-5)
    if found is None:
        return None
    chosen = tuple(int(np.argmax(found.values[columns])) for columns in written.columns)
    return ChoiceSolution(chosen, problem.cost(chosen), found.proven, len(written.program), written.rows)


def greedy(problem: ChoiceProblem) -> list[int]:
    """Choose each node's cheapest given those chosen before it: a first guess."""
    chosen: list[int] = []
    for v, costs in enumerate(problem.nodes):
        total = costs.copy()
        for (source, reader), matrix in problem.edges.items():
            if reader == v and source < v:
                total = total + matrix[chosen[source]]
            elif source == v and reader < v:
                total = total + matrix[:, chosen[reader]]
        chosen.append(int(np.argmin(total)))
    return chosen


class _Written:
    """The program, and the variables of each node's choices."""

    def __init__(self, problem: ChoiceProblem) -> None:
        self.program, self.rows = MixedIntegerProgram(), 0
        least = [
            float(costs.min()) for costs in problem.nodes
        ]  # what no choice avoids would hide small differences
        guess = problem.cost(greedy(problem)) - sum(least)
        self._scale = SCALE / guess if guess > 0 else 1.0
        self.columns = [
            np.array([self.program.binary(float(cost - bottom) * self._scale) for cost in costs])
            for costs, bottom in zip(problem.nodes, least, strict=True)
        ]
        for columns in self.columns:
            self._row([(int(column), 1.0) for column in columns], 1.0, 1.0)
        for (u, v), matrix in problem.edges.items():
            self._edge(self.columns[u], self.columns[v], matrix)
        for u, v, labels, others in problem.alike:
            self._alike(self.columns[u], self.columns[v], labels, others)
        if np.isfinite(problem.capacity):
            self._memory(problem)

    def _row(self, terms: Sequence[tuple[int, float]], low: float, high: float) -> None:
        self.program.row(terms, low, high)
        self.rows += 1

    def _edge(self, sources: Ints, readers: Ints, matrix: Floats) -> None:
        """Sums of e over a row (column) are the sums of s over the choices that share it."""
        rows, row_of = np.unique(matrix, axis=0, return_inverse=True)
        merged, column_of = np.unique(rows, axis=1, return_inverse=True)
        if merged.size == 1:
            self._constant(sources, float(merged[0, 0]))
            return
        entries = np.array([[self.program.number(float(c) * self._scale, 0, 1) for c in r] for r in merged])
        for group, line in enumerate(entries):
            self._flow(line, sources[row_of.ravel() == group])
        for group, line in enumerate(entries.T):
            self._flow(line, readers[column_of.ravel() == group])

    def _constant(self, sources: Ints, cost: float) -> None:
        if cost:
            one = self.program.number(cost * self._scale, 1, 1)
            self._row([(one, 1.0), (int(sources[0]), 0.0)], 1.0, 1.0)

    def _flow(self, entries: Ints, chosen: Ints) -> None:
        terms = [(int(entry), 1.0) for entry in entries] + [(int(variable), -1.0) for variable in chosen]
        self._row(terms, 0.0, 0.0)

    def _alike(self, first: Ints, second: Ints, labels: Sequence[object], others: Sequence[object]) -> None:
        for label in dict.fromkeys((*labels, *others)):
            terms = [(int(c), 1.0) for c, own in zip(first, labels, strict=True) if own == label]
            terms += [(int(c), -1.0) for c, own in zip(second, others, strict=True) if own == label]
            self._row(terms, 0.0, 0.0)

    def _memory(self, problem: ChoiceProblem) -> None:
        """In units of the capacity."""
        terms = [
            (int(variable), float(size) / problem.capacity)
            for columns, sizes in zip(self.columns, problem.memory, strict=True)
            for variable, size in zip(columns, sizes, strict=True)
        ]
        self._row(terms, -np.inf, 1.0)
