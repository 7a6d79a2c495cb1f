"""Who sends what to whom: collective algorithms as rounds of transfers between ranks, for any topology.

``groups`` has shape (groups, ranks): devices, each row a collective of its own; all rows communicate at once.
Ranks of a row should be in the order of the devices, so that neighbors share nodes. Parts are shares of the
vector, whose meaning is that of ``hardware.collectives``, as are the sources: Chan et al. 2007 (tree), Thakur
et al. 2005 (doubling, halving, Bruck), Hwang et al. 2023 (two-level all-to-all), Sanders, Speck and Traeff
2009 (two trees, as NCCL has between nodes). Rings: one for each rail that the ranks can use, each with an
equal part. Two trees pass segments on that are small against the vector. Not modeled otherwise: segmentation,
reduction arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from experiments.hardware.collectives import (
    Traffic,
    one_way_traffic,
    ring_all_reduce_traffic,
    tree_depth,
)
from experiments.hardware.topology import Flows, Ints, Round, Topology

#: The algorithm of parts that their owners broadcast.
CHAIN = "chain"
#: Flows looked at together where all ranks send to all.
CHUNK = 1 << 18


class Unfit(ValueError):
    """The algorithm cannot work on these groups."""


def _flows(groups: Ints, senders: Ints, receivers: Ints, part: float) -> Flows:
    """``part`` from each rank of ``senders`` to that of ``receivers``, in every group."""
    sources = groups[:, senders]
    return Flows(sources, groups[:, receivers], np.full(sources.shape, part))


# --- rings
# ----------------------------------------------------------------------------------------------------


def _ring(groups: Ints, topology: Topology, traffic: Traffic) -> Round:
    """Each rank sends to the next, step by step, over one ring for each rail."""
    if groups.shape[1] == 1:
        return Round(0, [])
    orders = _orders(groups, topology)
    ranks = np.arange(groups.shape[1])
    flows = [_flows(order, ranks, np.roll(ranks, -1), traffic.sent / len(orders)) for order in orders]
    laps = traffic.messages // (groups.shape[1] - 1)
    return Round(traffic.messages, flows, laps * _crossings(orders[0], topology))


def _crossings(order: Ints, topology: Topology) -> int:
    """Hops from node to node on the way of a part around the ring, which leaves out one that closes it."""
    nodes = topology.node[order]
    return max(0, int((nodes != np.roll(nodes, -1, axis=1)).sum(axis=1).max()) - 1)


def _orders(groups: Ints, topology: Topology) -> list[Ints]:
    """The groups in an order for each rail: one that enters every node at a device of that rail."""
    table = _by_node(groups, topology)
    if table is None:
        return [groups]
    rails = topology.rail[table]
    if not (rails == rails[:, :1, :]).all():
        return [groups]
    _, starts = np.unique(rails[0, 0], return_index=True)
    return [np.roll(table, -start, axis=2).reshape(groups.shape) for start in sorted(starts.tolist())]


def _by_node(groups: Ints, topology: Topology) -> Ints | None:
    """The groups as (groups, nodes, ranks of a node), or nothing where nodes have unequal numbers of their
    ranks.
    """
    nodes = topology.node[groups]
    each = int((nodes[0] == nodes[0, 0]).sum())
    if groups.shape[1] % each:
        return None
    table = nodes.reshape(len(groups), -1, each)
    whole = (table == table[:, :, :1]).all() and (np.diff(table[:, :, 0], axis=1) != 0).all()
    return groups.reshape(table.shape) if whole else None


def ring_reduce_scatter(groups: Ints, topology: Topology) -> list[Round]:
    return [_ring(groups, topology, one_way_traffic(groups.shape[1], 1.0))]


def ring_all_reduce(groups: Ints, topology: Topology) -> list[Round]:
    return [_ring(groups, topology, ring_all_reduce_traffic(groups.shape[1], 1.0))]


def chain_all_gather(groups: Ints, topology: Topology) -> list[Round]:
    """Parts of a ring's all-gather that are broadcast one after another by those that have them.

    Every hop starts as the slowest does: NCCL's model of broadcasts around a ring (src/graph/tuning.cc).
    """
    return [replace(_ring(groups, topology, one_way_traffic(groups.shape[1], 1.0)), crossings=None)]


def permute(groups: Ints, topology: Topology) -> list[Round]:
    ranks = np.arange(groups.shape[1])
    flows = [_flows(groups, ranks, np.roll(ranks, -1), 1.0)] if len(ranks) > 1 else []
    return [Round(len(flows), flows)]


# --- trees
# ----------------------------------------------------------------------------------------------------


def _halves(begin: int, end: int, depth: int) -> Iterator[tuple[int, int, int, int]]:
    """(round, sender, receiver, ranks behind the receiver) of a minimum spanning tree over ranks begin to
    end.
    """
    if end - begin < 2:
        return
    middle = end - (end - begin) // 2
    yield depth, begin, middle, end - middle
    yield from _halves(begin, middle, depth + 1)
    yield from _halves(middle, end, depth + 1)


def _tree(groups: Ints, scatter: bool) -> list[Round]:
    """From rank 0: the whole vector to the other half in each round, or only the parts that the
    half needs.
    """
    ranks = groups.shape[1]
    edges = np.array(sorted(_halves(0, ranks, 0)), np.int64)
    rounds = []
    for depth in range(tree_depth(ranks)):
        _, senders, receivers, behind = edges[edges[:, 0] == depth].T
        parts = behind / ranks if scatter else np.ones(len(behind))
        sources = groups[:, senders]
        rounds.append(Round(1, [Flows(sources, groups[:, receivers], np.broadcast_to(parts, sources.shape))]))
    return rounds


def mirror(rounds: list[Round]) -> list[Round]:
    return [Round(r.steps, [Flows(f.targets, f.sources, f.parts) for f in r.flows]) for r in reversed(rounds)]


def tree_all_reduce(groups: Ints, topology: Topology) -> list[Round]:
    broadcast = _tree(groups, scatter=False)
    return [*mirror(broadcast), *broadcast]


def tree_broadcast(groups: Ints, topology: Topology) -> list[Round]:
    return _tree(groups, scatter=False)


def scatter_gather_broadcast(groups: Ints, topology: Topology) -> list[Round]:
    return [*_tree(groups, scatter=True), *ring_reduce_scatter(groups, topology)]


def _parents(begin: int, end: int, above: int) -> Iterator[tuple[int, int]]:
    """(rank, its parent) in a balanced tree in order over ranks begin to end, whose middle hangs on
    ``above``.
    """
    if begin < end:
        middle = (begin + end) // 2
        if above >= 0:
            yield middle, above
        yield from _parents(begin, middle, middle)
        yield from _parents(middle + 1, end, middle)


def double_tree_all_reduce(groups: Ints, topology: Topology) -> list[Round]:
    """Half of the vector up and down each of two trees: who is inside one is a leaf of the other (nearly)."""
    ranks = groups.shape[1]
    if ranks == 1:
        return []
    children, parents = np.array(sorted(_parents(0, ranks, -1)), np.int64).T
    flows = [_flows(groups, (children + shift) % ranks, (parents + shift) % ranks, 0.5) for shift in (0, 1)]
    up = [Round(ranks.bit_length() - 1, flows)]
    return [*up, *mirror(up)]


# --- exchanges with a partner whose distance doubles
# ------------------------------------------------------------


def _exchange(groups: Ints, distance: int, power: int, part: float) -> Round:
    ranks = np.arange(power)
    return Round(1, [_flows(groups, ranks, ranks ^ distance, part)])


def _fold(groups: Ints, power: int) -> list[Round]:
    """Ranks beyond a power of two hand their vector to one below; mirrored, they get the result back."""
    extra = np.arange(groups.shape[1] - power)
    return [Round(1, [_flows(groups, extra + power, extra, 1.0)])] if len(extra) else []


def doubling_all_reduce(groups: Ints, topology: Topology) -> list[Round]:
    power = 1 << (groups.shape[1].bit_length() - 1)
    fold = _fold(groups, power)
    rounds = [_exchange(groups, 1 << k, power, 1.0) for k in range(power.bit_length() - 1)]
    return [*fold, *rounds, *mirror(fold)]


def halving_doubling_all_reduce(groups: Ints, topology: Topology) -> list[Round]:
    """Neighbors exchange the large halves, so that these stay inside a node."""
    power = 1 << (groups.shape[1].bit_length() - 1)
    fold = _fold(groups, power)
    halving = [_exchange(groups, 1 << k, power, 0.5 ** (k + 1)) for k in range(power.bit_length() - 1)]
    return [*fold, *halving, *mirror(halving), *mirror(fold)]


def halving_reduce_scatter(groups: Ints, topology: Topology) -> list[Round]:
    """A ring where the ranks are no power of two."""
    ranks = groups.shape[1]
    if ranks & (ranks - 1):
        return ring_reduce_scatter(groups, topology)
    return [_exchange(groups, 1 << k, ranks, 0.5 ** (k + 1)) for k in range(ranks.bit_length() - 1)]


def doubling_all_gather(groups: Ints, topology: Topology) -> list[Round]:
    return mirror(halving_reduce_scatter(groups, topology))


# --- two levels
# ---------------------------------------------------------------------------------------------------


def _levels(groups: Ints, topology: Topology) -> tuple[Ints, Ints]:
    """Rows inside nodes, and rows of equal places across nodes."""
    table = _by_node(groups, topology)
    if table is None:
        raise Unfit(f"{groups.shape[1]} ranks are spread unevenly over nodes")
    _, nodes, each = table.shape
    return table.reshape(-1, each), table.swapaxes(1, 2).reshape(-1, nodes)


def _scaled(rounds: list[Round], share: float) -> list[Round]:
    return [Round(r.steps, [Flows(f.sources, f.targets, f.parts * share) for f in r.flows]) for r in rounds]


def hierarchical_all_reduce(groups: Ints, topology: Topology) -> list[Round]:
    inside, across = _levels(groups, topology)
    each = inside.shape[1]
    scatter = ring_reduce_scatter(inside, topology)
    return [*scatter, *_scaled(ring_all_reduce(across, topology), 1 / each), *mirror(scatter)]


def hierarchical_tree_all_reduce(groups: Ints, topology: Topology) -> list[Round]:
    """Rings inside the nodes, two trees for each place between them."""
    inside, across = _levels(groups, topology)
    scatter = ring_reduce_scatter(inside, topology)
    between = _scaled(double_tree_all_reduce(across, topology), 1 / inside.shape[1])
    return [*scatter, *between, *mirror(scatter)]


def hierarchical_reduce_scatter(groups: Ints, topology: Topology) -> list[Round]:
    inside, across = _levels(groups, topology)
    each = inside.shape[1]
    return [
        *ring_reduce_scatter(inside, topology),
        *_scaled(ring_reduce_scatter(across, topology), 1 / each),
    ]


def hierarchical_all_gather(groups: Ints, topology: Topology) -> list[Round]:
    return mirror(hierarchical_reduce_scatter(groups, topology))


def hierarchical_all_to_all(groups: Ints, topology: Topology) -> list[Round]:
    """Inside the node first, then once between equal places of the nodes."""
    inside, across = _levels(groups, topology)
    return [*pairwise_all_to_all(inside, topology), *pairwise_all_to_all(across, topology)]


# --- all to all
# -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AllPairs:
    """Every rank sends an equal part of its bytes to every other, a chunk of distances at a time."""

    groups: Ints

    def __iter__(self) -> Iterator[Flows]:
        ranks = np.arange(self.groups.shape[1])
        together = max(1, CHUNK // self.groups.size)
        for start in range(1, len(ranks), together):
            distances = np.arange(start, min(start + together, len(ranks)))
            targets = self.groups[:, (ranks[None, :] + distances[:, None]) % len(ranks)]
            sources = np.broadcast_to(self.groups[:, None, :], targets.shape)
            yield Flows(sources, targets, np.full(targets.shape, 1 / len(ranks)))


def pairwise_all_to_all(groups: Ints, topology: Topology) -> list[Round]:
    return [Round(groups.shape[1] - 1, AllPairs(groups))]


def bruck_all_to_all(groups: Ints, topology: Topology) -> list[Round]:
    """In round k every rank passes on the parts whose distance has bit k."""
    ranks = np.arange(groups.shape[1])
    rounds = []
    for k in range(tree_depth(len(ranks))):
        part = float((ranks >> k & 1).sum()) / len(ranks)
        rounds.append(Round(1, [_flows(groups, ranks, (ranks + (1 << k)) % len(ranks), part)]))
    return rounds


Pattern = Callable[[Ints, Topology], list[Round]]

#: Algorithms of each kind, the usual one first.
PATTERNS: dict[str, dict[str, Pattern]] = {
    "all_reduce": {
        "ring": ring_all_reduce,
        "tree": tree_all_reduce,
        "doubling": doubling_all_reduce,
        "halving_doubling": halving_doubling_all_reduce,
        "hierarchical": hierarchical_all_reduce,
        "double_tree": double_tree_all_reduce,
        "hierarchical_tree": hierarchical_tree_all_reduce,
    },
    "reduce_scatter": {
        "ring": ring_reduce_scatter,
        "halving_doubling": halving_reduce_scatter,
        "hierarchical": hierarchical_reduce_scatter,
    },
    "all_gather": {
        "ring": ring_reduce_scatter,
        "halving_doubling": doubling_all_gather,
        "hierarchical": hierarchical_all_gather,
        CHAIN: chain_all_gather,
    },
    "all_to_all": {
        "pairwise": pairwise_all_to_all,
        "bruck": bruck_all_to_all,
        "hierarchical": hierarchical_all_to_all,
    },
    "permute": {"ring": permute},
    "broadcast": {"tree": tree_broadcast, "scatter_gather": scatter_gather_broadcast},
}


def usual_algorithm(kind: str) -> str:
    """The algorithm of a kind of collective where nobody names one that it has."""
    return next(iter(PATTERNS[kind]))
