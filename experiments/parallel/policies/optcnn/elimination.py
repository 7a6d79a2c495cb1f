"""Least cost of one choice for every node of a graph, by eliminating nodes and edges.

Source: Jia et al. (OptCNN), ICML'18, section 5: a node with one edge in and one out is replaced by an edge
whose table holds the best choice between each pair of choices at its ends; parallel edges add up; what is
left is enumerated (``planning.operators.enumeration``), and the eliminations are undone in reverse. Beyond
the paper, a node with a single neighbor is folded into it, which keeps the result exact.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from experiments.core.budget import Budget
from experiments.parallel.planning.operators.enumeration import Step, cheapest, enumerate_choices, undone
from experiments.workloads.step import Floats


@dataclass(frozen=True)
class Elimination:
    """The best choice of every node, its cost, and what was eliminated or enumerated.

    ``exact`` is false where not all choices of what was left could be enumerated.
    """

    choices: tuple[int, ...]
    cost: float
    nodes_eliminated: int
    edges_eliminated: int
    leaves_folded: int
    enumerated: int
    exact: bool


@dataclass
class _Graph:
    """What is left. Edges are kept once, from the smaller to the larger node."""

    nodes: dict[int, Floats]
    edges: dict[tuple[int, int], Floats] = field(default_factory=dict)
    neighbors: dict[int, set[int]] = field(default_factory=dict)
    undo: list[Step] = field(default_factory=list)
    merged: int = 0

    def add(self, first: int, second: int, table: Floats) -> None:
        """Edge elimination: a second edge between the same nodes is added to the first."""
        if first > second:
            first, second, table = second, first, table.T
        if (first, second) in self.edges:
            self.edges[first, second] = self.edges[first, second] + table
            self.merged += 1
            return
        self.edges[first, second] = table
        self.neighbors[first].add(second)
        self.neighbors[second].add(first)

    def table(self, first: int, second: int) -> Floats:
        """Of the edge between two nodes; rows are the choices of ``first``."""
        return self.edges[first, second] if first < second else self.edges[second, first].T

    def take_edge(self, first: int, second: int) -> Floats:
        """Removes the edge; rows are the choices of ``first``."""
        self.neighbors[first].discard(second)
        self.neighbors[second].discard(first)
        found = self.table(first, second)
        del self.edges[min(first, second), max(first, second)]
        return found


def eliminate(
    nodes: Sequence[Floats],
    edges: Mapping[tuple[int, int], Floats],
    budget: Budget | None = None,
    most_sums: float = math.inf,
) -> Elimination:
    """Return the optimum; ``edges`` are tables over the choices of both ends.

    See ``Elimination.exact``.

    ``most_sums`` are those of one enumeration of what is left; all are spent from ``budget``.
    """
    budget = budget or Budget(sys.maxsize)
    graph = _Graph(dict(enumerate(nodes)), neighbors={node: set() for node in range(len(nodes))})
    for (source, reader), table in edges.items():
        graph.add(source, reader, table)
    inner, leaves = _reduce(graph, budget)
    left = len(graph.nodes)
    rest, cost, exact = enumerate_choices(graph.nodes, graph.edges, budget, most_sums)
    chosen = undone(graph.undo, rest)
    found = tuple(chosen[node] for node in range(len(nodes)))
    return Elimination(found, cost, inner, graph.merged, leaves, left, exact)


def _reduce(graph: _Graph, budget: Budget) -> tuple[int, int]:
    """Node and edge eliminations until none applies; counts of inner nodes and of leaves."""
    inner = leaves = 0
    waiting = sorted(graph.nodes, reverse=True)
    while waiting:
        node = waiting.pop()
        around = sorted(graph.neighbors[node]) if node in graph.nodes else []
        if len(around) not in (1, 2):
            continue
        if len(around) == 1:
            budget.spend(_fold(graph, node, around[0]))
            leaves += 1
        else:
            budget.spend(_eliminate_node(graph, node, around[0], around[1]))
            inner += 1
        waiting += around
    return inner, leaves


def _fold(graph: _Graph, node: int, other: int) -> int:
    """Fold a leaf into its neighbor; return how many sums were compared."""
    table = graph.take_edge(other, node) + graph.nodes.pop(node)[None, :]
    best, cost = cheapest(table)
    graph.undo.append((node, (other,), best))
    graph.nodes[other] = graph.nodes[other] + cost
    return table.size


def _eliminate_node(graph: _Graph, node: int, before: int, after: int) -> int:
    """Put t(i, k) = min over j of t(i, j) + own(j) + t(j, k) in its place; return how many sums were
    compared.
    """
    into = graph.take_edge(before, node) + graph.nodes.pop(node)[None, :]
    out = graph.take_edge(node, after)
    sums = into[:, None, :] + np.ascontiguousarray(out.T)[None, :, :]
    best, cost = cheapest(sums)
    graph.undo.append((node, (before, after), best))
    graph.add(before, after, cost)
    return sums.size
