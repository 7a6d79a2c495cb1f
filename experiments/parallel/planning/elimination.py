"""Least cost of one choice for every node of a graph, by eliminating nodes and edges.

Source: Jia et al. (OptCNN), ICML'18, section 5: a node with one edge in and one out is replaced by an edge whose table holds
the best choice between each pair of choices at its ends; parallel edges add up; what is left is enumerated, and the
eliminations are undone in reverse. Two things here go beyond the paper and keep the result exact: a node with a single
neighbour is folded into it, and what is left is enumerated neighbour by neighbour (the node with fewest neighbours is
replaced by one table over them), which costs C^(neighbours + 1) instead of C^K. Where even that is too much, the nodes
that are left keep their most promising choices only, and the result is no proven optimum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

#: A node, the nodes that decide its choice, and its best choice for each of theirs.
Step = tuple[int, tuple[int, ...], Ints]
#: Nodes and a table over their choices.
Table = tuple[tuple[int, ...], Floats]

#: Entries of the largest table that the enumeration of what is left may make.
MOST_ENTRIES = 20_000_000


@dataclass(frozen=True)
class Elimination:
    """The best choice of every node, its cost, and what was done: eliminations and the nodes left for enumeration.

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
    neighbours: dict[int, set[int]] = field(default_factory=dict)
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
        self.neighbours[first].add(second)
        self.neighbours[second].add(first)

    def table(self, first: int, second: int) -> Floats:
        """Of the edge between two nodes; rows are the choices of ``first``."""
        return self.edges[first, second] if first < second else self.edges[second, first].T

    def taken(self, first: int, second: int) -> Floats:
        """Removes the edge; rows are the choices of ``first``."""
        self.neighbours[first].discard(second)
        self.neighbours[second].discard(first)
        found = self.table(first, second)
        del self.edges[min(first, second), max(first, second)]
        return found


def eliminate(nodes: Sequence[Floats], edges: Mapping[tuple[int, int], Floats]) -> Elimination:
    """The optimum (see ``Elimination.exact``); ``edges`` are tables over the choices of both ends."""
    graph = _Graph(dict(enumerate(nodes)), neighbours={node: set() for node in range(len(nodes))})
    for (source, reader), table in edges.items():
        graph.add(source, reader, table)
    inner, leaves = _reduce(graph)
    left, reduced = sorted(graph.nodes), len(graph.undo)
    kept = _narrowed(graph)
    cost = _enumerate(graph)
    rest = _undone(graph.undo[reduced:], {})
    chosen = _undone(graph.undo[:reduced], {node: int(kept[node][rest[node]]) for node in left})
    exact = all(len(kept[node]) == len(nodes[node]) for node in left)
    found = tuple(chosen[node] for node in range(len(nodes)))
    return Elimination(found, cost, inner, graph.merged, leaves, len(left), exact)


def _undone(steps: Sequence[Step], chosen: dict[int, int]) -> dict[int, int]:
    for node, deciding, best in reversed(steps):
        chosen[node] = int(best[tuple(chosen[other] for other in deciding)])
    return chosen


def _reduce(graph: _Graph) -> tuple[int, int]:
    """Node and edge eliminations until none applies; counts of inner nodes and of leaves."""
    inner = leaves = 0
    waiting = sorted(graph.nodes, reverse=True)
    while waiting:
        node = waiting.pop()
        around = sorted(graph.neighbours[node]) if node in graph.nodes else []
        if len(around) not in (1, 2):
            continue
        if len(around) == 1:
            _fold(graph, node, around[0])
            leaves += 1
        else:
            _eliminate_node(graph, node, around[0], around[1])
            inner += 1
        waiting += around
    return inner, leaves


def _fold(graph: _Graph, node: int, other: int) -> None:
    table = graph.taken(other, node) + graph.nodes.pop(node)[None, :]
    graph.undo.append((node, (other,), table.argmin(axis=1)))
    graph.nodes[other] = graph.nodes[other] + table.min(axis=1)


def _eliminate_node(graph: _Graph, node: int, before: int, after: int) -> None:
    """t(i, k) = min over j of t(i, j) + own(j) + t(j, k)."""
    into = graph.taken(before, node) + graph.nodes.pop(node)[None, :]
    out = graph.taken(node, after)
    sums = into[:, :, None] + out[None, :, :]
    graph.undo.append((node, (before, after), sums.argmin(axis=1)))
    graph.add(before, after, sums.min(axis=1))


def _narrowed(graph: _Graph) -> dict[int, Ints]:
    """The choices that nodes keep so that no table exceeds ``MOST_ENTRIES``: all, or the first half by the least that a
    choice can cost with its edges, or a quarter, and so on.
    """
    sizes = {node: len(own) for node, own in graph.nodes.items()}
    most = max(sizes.values(), default=0)
    while _order(graph, {node: min(size, most) for node, size in sizes.items()})[1] > MOST_ENTRIES:
        most = (most + 1) // 2
    kept: dict[int, Ints] = {}
    for node, own in graph.nodes.items():
        least = own + sum(graph.table(node, other).min(axis=1) for other in sorted(graph.neighbours[node]))
        kept[node] = np.sort(np.argsort(least, kind="stable")[:most])
    graph.nodes = {node: own[kept[node]] for node, own in graph.nodes.items()}
    graph.edges = {(i, j): table[np.ix_(kept[i], kept[j])] for (i, j), table in graph.edges.items()}
    return kept


def _order(graph: _Graph, sizes: Mapping[int, int]) -> tuple[list[int], float]:
    """Nodes by the size of the table over their neighbours, smallest first, and the entries of the largest one."""
    around = {node: set(graph.neighbours[node]) for node in graph.nodes}
    order, largest = [], 0.0
    while around:
        entries = {n: sizes[n] * math.prod(sizes[other] for other in others) for n, others in around.items()}
        node = min(around, key=lambda candidate: (entries[candidate], candidate))
        largest = max(largest, entries[node])
        joined = around.pop(node)
        for other in joined:
            around[other] |= joined
            around[other] -= {node, other}
        order.append(node)
    return order, largest


def _enumerate(graph: _Graph) -> float:
    """All choices of what is left, one node after another; the least cost."""
    tables: list[Table] = [((node,), own) for node, own in sorted(graph.nodes.items())]
    tables += [(pair, table) for pair, table in sorted(graph.edges.items())]
    for node in _order(graph, {node: len(own) for node, own in graph.nodes.items()})[0]:
        tables = _without(graph, tables, node)
    return float(sum(table for _, table in tables))


def _scope(tables: Sequence[Table], node: int) -> tuple[int, ...]:
    """The node and all that share a table with it, the node last."""
    around = {other for names, _ in tables if node in names for other in names}
    return (*sorted(around - {node}), node)


def _without(graph: _Graph, tables: Sequence[Table], node: int) -> list[Table]:
    scope = _scope(tables, node)
    joined: Floats = np.zeros(())
    for names, table in tables:
        if node in names:
            order = [names.index(other) for other in scope if other in names]
            shape = [table.shape[names.index(other)] if other in names else 1 for other in scope]
            joined = joined + table.transpose(order).reshape(shape)
    graph.undo.append((node, scope[:-1], joined.argmin(axis=-1)))
    return [*(entry for entry in tables if node not in entry[0]), (scope[:-1], joined.min(axis=-1))]
