"""Least cost of one choice for every node of a graph, by looking at all choices, one node after another.

The node whose table over its neighbors is smallest is replaced by that table (its best choice for each of
theirs), and so on: the optimum of a full enumeration at C^(neighbors + 1) instead of C^nodes. Where even
that is too much, nodes keep their most promising choices only; these are chosen again around each better
solution, and the result is no proven optimum.
"""

from __future__ import annotations

import functools
import heapq
import math
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from experiments.core.budget import Budget
from experiments.core.errors import Infeasible
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

#: A node, the nodes that decide its choice, and its best choice for each of theirs.
Step = tuple[int, tuple[int, ...], Ints]
#: Nodes and a table over their choices.
Table = tuple[tuple[int, ...], Floats]
Nodes = Mapping[int, Floats]
#: From the smaller to the larger node.
Edges = Mapping[tuple[int, int], Floats]

#: Entries of the largest table.
MOST_ENTRIES = 20_000_000


def enumerate_choices(
    nodes: Nodes, edges: Edges, budget: Budget | None = None, most_sums: float = math.inf
) -> tuple[dict[int, int], float, bool]:
    """The choice of every node, its cost, and whether all choices were looked at; ``most_sums`` at once."""
    budget = budget or Budget(sys.maxsize)
    most = _width(nodes, edges, most_sums)
    if most == max((len(own) for own in nodes.values()), default=0):
        return *_all(nodes, edges, budget), True
    best, cost = _among(nodes, edges, _promising(nodes, edges, None, most), budget)
    while budget.take(0):
        chosen, found = _among(nodes, edges, _promising(nodes, edges, best, most), budget)
        if found >= cost:
            break
        best, cost = chosen, found
    return best, cost, False


def undone(steps: Sequence[Step], chosen: dict[int, int]) -> dict[int, int]:
    """``chosen`` with the choices of all nodes that were replaced, the last one first."""
    for node, deciding, best in reversed(steps):
        chosen[node] = int(best[tuple(chosen[other] for other in deciding)])
    return chosen


def _width(nodes: Nodes, edges: Edges, most_sums: float) -> int:
    """Choices that every node may keep so that no table exceeds ``MOST_ENTRIES``, nor all of them
    ``most_sums``.
    """
    return widest(edges, {node: len(own) for node, own in nodes.items()}, most_sums)


def widest(scopes: Collection[tuple[int, ...]], sizes: Mapping[int, int], most_sums: float) -> int:
    """The same for tables over any number of nodes."""
    most = max(sizes.values(), default=0)
    while most > 1:
        _, largest, total = _order(scopes, {node: min(size, most) for node, size in sizes.items()})
        if largest <= MOST_ENTRIES and total <= most_sums:
            break
        most -= max(1, most // 8)
    return most


def _promising(nodes: Nodes, edges: Edges, around: Mapping[int, int] | None, most: int) -> dict[int, Ints]:
    """The choices that cost least with their edges: to the best choices of the neighbors, or to those of a
    solution.
    """
    cost = {node: own.copy() for node, own in nodes.items()}
    for (i, j), table in edges.items():
        cost[i] += table.min(axis=1) if around is None else table[:, around[j]]
        cost[j] += table.min(axis=0) if around is None else table[around[i], :]
    return {node: np.sort(np.argsort(column, kind="stable")[:most]) for node, column in cost.items()}


def _among(
    nodes: Nodes, edges: Edges, kept: Mapping[int, Ints], budget: Budget
) -> tuple[dict[int, int], float]:
    few = {node: own[kept[node]] for node, own in nodes.items()}
    between = {(i, j): table[np.ix_(kept[i], kept[j])] for (i, j), table in edges.items()}
    chosen, cost = _all(few, between, budget)
    return {node: int(kept[node][choice]) for node, choice in chosen.items()}, cost


def _all(nodes: Nodes, edges: Edges, budget: Budget) -> tuple[dict[int, int], float]:
    tables: list[Table] = [((node,), own) for node, own in sorted(nodes.items())]
    return least([*tables, *((pair, table) for pair, table in sorted(edges.items()))], budget)


def least_within(
    tables: Sequence[Table], most_sums: float, budget: Budget
) -> tuple[dict[int, int], float, bool]:
    """``least``, and whether all choices were looked at.

    Where they are too many, each node keeps its most promising.
    """
    sizes = {node: size for names, table in tables for node, size in zip(names, table.shape, strict=True)}
    scopes = [names for names, _ in tables]
    most = widest(scopes, sizes, most_sums)
    if most == max(sizes.values(), default=0):
        return *least(tables, budget), True
    cost = {node: np.zeros(size) for node, size in sizes.items()}
    for names, table in tables:
        for axis, node in enumerate(names):
            cost[node] += table.min(axis=tuple(other for other in range(len(names)) if other != axis))
    kept = {node: np.sort(np.argsort(column, kind="stable")[:most]) for node, column in cost.items()}
    few = [(names, table[np.ix_(*(kept[node] for node in names))]) for names, table in tables]
    chosen, total = least(few, budget)
    return {node: int(kept[node][choice]) for node, choice in chosen.items()}, total, False


def least(tables: Sequence[Table], budget: Budget | None = None) -> tuple[dict[int, int], float]:
    """The choices with the least sum of tables, each over any number of nodes, and that sum."""
    sizes = {node: size for names, table in tables for node, size in zip(names, table.shape, strict=True)}
    settled = {node: 0 for node, size in sizes.items() if size == 1}
    tables = [_open(one, settled) for one in tables]
    sizes = {node: size for node, size in sizes.items() if node not in settled}
    order, largest, _ = _order([names for names, _ in tables], sizes)
    if largest > MOST_ENTRIES:
        raise Infeasible(f"choices that belong together need a table of {largest:.2g} entries", "the graph")
    steps: list[Step] = []
    joint = _Joint(tables)
    for node in order:
        steps.append(joint.replace(node))
        if budget:
            budget.spend(steps[-1][2].size * sizes[node])
    return undone(steps, dict(settled)), float(sum(table for _, table in joint.tables.values()))


def _open(one: Table, settled: Mapping[int, int]) -> Table:
    """The table over the nodes that have a choice: arrays have few dimensions, and graphs many nodes with
    none.
    """
    names, table = one
    kept = [place for place, name in enumerate(names) if name not in settled]
    return tuple(names[place] for place in kept), table.reshape([table.shape[place] for place in kept])


def _order(
    scopes: Iterable[tuple[int, ...]], sizes: Mapping[int, int]
) -> tuple[tuple[int, ...], float, float]:
    """Nodes by the size of the table over their neighbors, smallest first; entries of the largest, and of
    all.
    """
    return _ordered(tuple(scopes), tuple(sizes.items()))


@functools.lru_cache(maxsize=64)  # a search asks about the same graph at every price
def _ordered(
    scopes: tuple[tuple[int, ...], ...], items: tuple[tuple[int, int], ...]
) -> tuple[tuple[int, ...], float, float]:
    sizes = dict(items)
    around: dict[int, set[int]] = defaultdict(set)
    for names in scopes:
        for name in names:
            around[name] |= {*names} - {name}

    def entries(node: int) -> float:
        return float(sizes[node] * math.prod(sizes[other] for other in around[node]))

    now = {node: entries(node) for node in sizes}
    waiting = [(size, node) for node, size in now.items()]
    heapq.heapify(waiting)
    order, largest, total = [], 0.0, 0.0
    while waiting:
        size, node = heapq.heappop(waiting)
        if now.get(node) != size:  # its neighbors have changed since
            continue
        largest, total = max(largest, size), total + size
        joined = around.pop(node, set())
        del now[node]
        for other in joined:
            around[other] |= joined
            around[other] -= {node, other}
        for other in joined:
            now[other] = entries(other)
            heapq.heappush(waiting, (now[other], other))
        order.append(node)
    return tuple(order), largest, total


class _Joint:
    """Tables by number, in the order in which they are added up, and which of them a node is in."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self.tables = dict(enumerate(tables))
        self._of: dict[int, set[int]] = defaultdict(set)
        for number, (names, _) in self.tables.items():
            for name in names:
                self._of[name].add(number)
        self._next = len(self.tables)

    def replace(self, node: int) -> Step:
        """Put one table in the place of all that have ``node``."""
        taken = [self._take(number) for number in sorted(self._of[node])]
        around = {other for names, _ in taken for other in names}
        scope = (*sorted(around - {node}), node)
        joined: Floats = np.zeros(())
        for names, table in taken:
            order = [names.index(other) for other in scope if other in names]
            shape = [table.shape[names.index(other)] if other in names else 1 for other in scope]
            joined = joined + table.transpose(order).reshape(shape)
        best, cost = cheapest(joined)
        self._add((scope[:-1], cost))
        return node, scope[:-1], best

    def _take(self, number: int) -> Table:
        found = self.tables.pop(number)
        for name in found[0]:
            self._of[name].discard(number)
        return found

    def _add(self, table: Table) -> None:
        self.tables[self._next] = table
        for name in table[0]:
            self._of[name].add(self._next)
        self._next += 1


def cheapest(table: Floats) -> tuple[Ints, Floats]:
    """Along the last axis the place of the least entry, the first of equals, and the entry."""
    best = table.argmin(axis=-1)
    return best, np.take_along_axis(table, best[..., None], axis=-1)[..., 0]
