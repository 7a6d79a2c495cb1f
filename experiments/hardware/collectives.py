"""Costs of collective operations in the alpha-beta model.

A transfer of x bytes costs alpha + x beta: alpha is the link's latency, beta the inverse of its bandwidth per
direction. Each algorithm is described once, by its ``Traffic`` on the critical path; its time on a link follows.
The arithmetic of reductions (gamma) is not counted: on accelerators it is far below the transfer.

``size`` is the bytes of the whole vector (what one rank holds before an all-reduce or after an all-gather, and
what one rank sends in total, its own share included, in an all-to-all); ``ranks`` is the number of participants.

Sources: Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication: theory, practice, and
experience", CCPE 19(13), 2007 (tree and bucket algorithms); Thakur, Rabenseifner and Gropp, "Optimization of
collective communication operations in MPICH", IJHPCA 19(1), 2005 (doubling, halving-doubling, Bruck).
Not modelled: contention between collectives, segmentation of trees, non-uniform links inside one level.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from experiments.hardware.parts import Link


@dataclass(frozen=True)
class Traffic:
    """What the busiest rank does one after another: ``messages`` transfers of ``sent`` bytes together.

    ``both_ways`` says that it receives as much while it sends: free on a duplex link, twice the time otherwise.
    """

    messages: int
    sent: float
    both_ways: bool


def seconds(link: Link, traffic: Traffic) -> float:
    """messages x alpha + bytes x beta."""
    shared = 2 if traffic.both_ways and not link.duplex else 1
    return traffic.messages * link.latency + shared * traffic.sent / link.bandwidth


def _check(ranks: int, size: float) -> None:
    if ranks < 1 or not 0 <= size < math.inf:
        raise ValueError(f"{ranks} ranks and {size} bytes: at least one rank and a finite size are needed")


def _depth(ranks: int) -> int:
    """ceil(log2 ranks): rounds until a tree has reached every rank."""
    return (ranks - 1).bit_length()


# --- traffic of each algorithm ------------------------------------------------------------------------------


def ring_reduce_scatter_traffic(ranks: int, size: float) -> Traffic:
    """ranks-1 steps; in each a rank passes on one of ``ranks`` equal parts: (n-1)/n of the vector in all."""
    _check(ranks, size)
    return Traffic(ranks - 1, (ranks - 1) / ranks * size, True)


def ring_all_gather_traffic(ranks: int, size: float) -> Traffic:
    """The mirror image of the reduce-scatter: same steps, same bytes."""
    return ring_reduce_scatter_traffic(ranks, size)


def ring_all_reduce_traffic(ranks: int, size: float) -> Traffic:
    """Reduce-scatter, then all-gather: 2(n-1) steps and 2(n-1)/n of the vector per rank."""
    half = ring_reduce_scatter_traffic(ranks, size)
    return Traffic(2 * half.messages, 2 * half.sent, True)


def tree_broadcast_traffic(ranks: int, size: float) -> Traffic:
    """Minimum spanning tree: the root sends the whole vector in each of ceil(log2 n) rounds."""
    _check(ranks, size)
    return Traffic(_depth(ranks), _depth(ranks) * size, False)


def tree_reduce_traffic(ranks: int, size: float) -> Traffic:
    """The broadcast's mirror image: the root receives the whole vector in each round."""
    return tree_broadcast_traffic(ranks, size)


def tree_all_reduce_traffic(ranks: int, size: float) -> Traffic:
    """Tree reduce to one rank, then tree broadcast from it: 2 ceil(log2 n) (alpha + size beta)."""
    half = tree_broadcast_traffic(ranks, size)
    return Traffic(2 * half.messages, 2 * half.sent, False)


def tree_scatter_traffic(ranks: int, size: float) -> Traffic:
    """The root sends the other half's parts in each round: ceil(log2 n) alpha + (n-1)/n size beta. Also gather."""
    _check(ranks, size)
    return Traffic(_depth(ranks), (ranks - 1) / ranks * size, False)


def doubling_all_reduce_traffic(ranks: int, size: float) -> Traffic:
    """Recursive doubling: log2 n exchanges of the whole vector; other than a power of two folds in and out."""
    _check(ranks, size)
    rounds = _exchange_rounds(ranks)
    return Traffic(rounds, rounds * size, True)


def halving_doubling_all_reduce_traffic(ranks: int, size: float) -> Traffic:
    """Recursive halving, then doubling: 2 log2 n exchanges, 2(n-1)/n of the vector, plus folds."""
    _check(ranks, size)
    power = 1 << (ranks.bit_length() - 1)
    folds = 0 if power == ranks else 2
    exchanged = 2 * (power - 1) / power * size
    return Traffic(2 * _depth(power) + folds, exchanged + folds * size, True)


def _exchange_rounds(ranks: int) -> int:
    power = 1 << (ranks.bit_length() - 1)
    return _depth(power) + (0 if power == ranks else 2)


def all_to_all_traffic(ranks: int, size: float) -> Traffic:
    """Pairwise exchange: n-1 steps, in each 1/n of the rank's bytes goes to another rank."""
    return ring_reduce_scatter_traffic(ranks, size)


def bruck_all_to_all_traffic(ranks: int, size: float) -> Traffic:
    """Bruck: ceil(log2 n) rounds that each move half of the rank's bytes; for short messages."""
    _check(ranks, size)
    return Traffic(_depth(ranks), _depth(ranks) * size / 2, True)


def permute_traffic(ranks: int, size: float) -> Traffic:
    """Every rank sends ``size`` bytes to one other and receives as much: one step of a ring, a halo."""
    _check(ranks, size)
    return Traffic(1, size, True) if ranks > 1 else Traffic(0, 0.0, True)


def scatter_gather_broadcast_traffic(ranks: int, size: float) -> Traffic:
    """Tree scatter, then ring all-gather: (ceil(log2 n) + n-1) messages, 2(n-1)/n of the vector; for long ones."""
    scatter, gather = tree_scatter_traffic(ranks, size), ring_all_gather_traffic(ranks, size)
    return Traffic(scatter.messages + gather.messages, scatter.sent + gather.sent, True)


# --- seconds on a link --------------------------------------------------------------------------------------


def point_to_point(link: Link, size: float) -> float:
    """alpha + size beta."""
    _check(1, size)
    return seconds(link, Traffic(1, size, False))


def ring_reduce_scatter(link: Link, ranks: int, size: float) -> float:
    """(n-1) alpha + (n-1)/n size beta."""
    return seconds(link, ring_reduce_scatter_traffic(ranks, size))


def ring_all_gather(link: Link, ranks: int, size: float) -> float:
    """(n-1) alpha + (n-1)/n size beta, with ``size`` the gathered vector."""
    return seconds(link, ring_all_gather_traffic(ranks, size))


def ring_all_reduce(link: Link, ranks: int, size: float) -> float:
    """2(n-1) alpha + 2(n-1)/n size beta."""
    return seconds(link, ring_all_reduce_traffic(ranks, size))


def tree_broadcast(link: Link, ranks: int, size: float) -> float:
    """ceil(log2 n) (alpha + size beta)."""
    return seconds(link, tree_broadcast_traffic(ranks, size))


def tree_reduce(link: Link, ranks: int, size: float) -> float:
    """ceil(log2 n) (alpha + size beta)."""
    return seconds(link, tree_reduce_traffic(ranks, size))


def tree_scatter(link: Link, ranks: int, size: float) -> float:
    """ceil(log2 n) alpha + (n-1)/n size beta; a gather costs the same."""
    return seconds(link, tree_scatter_traffic(ranks, size))


def tree_all_reduce(link: Link, ranks: int, size: float) -> float:
    """2 ceil(log2 n) (alpha + size beta)."""
    return seconds(link, tree_all_reduce_traffic(ranks, size))


def doubling_all_reduce(link: Link, ranks: int, size: float) -> float:
    """log2 n (alpha + size beta) for a power of two."""
    return seconds(link, doubling_all_reduce_traffic(ranks, size))


def halving_doubling_all_reduce(link: Link, ranks: int, size: float) -> float:
    """2 log2 n alpha + 2(n-1)/n size beta for a power of two."""
    return seconds(link, halving_doubling_all_reduce_traffic(ranks, size))


def all_to_all(link: Link, ranks: int, size: float) -> float:
    """(n-1) alpha + (n-1)/n size beta, pairwise."""
    return seconds(link, all_to_all_traffic(ranks, size))


def bruck_all_to_all(link: Link, ranks: int, size: float) -> float:
    """ceil(log2 n) (alpha + size/2 beta)."""
    return seconds(link, bruck_all_to_all_traffic(ranks, size))


def permute(link: Link, ranks: int, size: float) -> float:
    """alpha + size beta; nothing for one rank."""
    return seconds(link, permute_traffic(ranks, size))


ALL_REDUCE: dict[str, Callable[[Link, int, float], float]] = {
    "doubling": doubling_all_reduce,
    "halving_doubling": halving_doubling_all_reduce,
    "ring": ring_all_reduce,
    "tree": tree_all_reduce,
}


def best_all_reduce(link: Link, ranks: int, size: float) -> tuple[str, float]:
    """The cheapest of ``ALL_REDUCE`` and its seconds; the first name in the alphabet wins a tie."""
    times = {name: cost(link, ranks, size) for name, cost in ALL_REDUCE.items()}
    return min(times.items(), key=lambda item: (item[1], item[0]))


def ring_beats_tree_from(link: Link, ranks: int) -> float:
    """Bytes from which the ring all-reduce costs no more than the tree's; 0 where it never costs more.

    With L = ceil(log2 n): 2L(alpha + x beta) = 2(n-1) alpha + 2(n-1)/n x beta gives
    x = alpha (n-1-L) / (beta (L - (n-1)/n)). On a link that is not duplex the ring's beta doubles.
    """
    _check(ranks, 0)
    depth = _depth(ranks)
    if ranks - 1 <= depth:
        return 0.0
    share = (ranks - 1) / ranks * (1 if link.duplex else 2)
    return link.latency * link.bandwidth * (ranks - 1 - depth) / (depth - share)


# --- two levels: fast links inside a node, a network between nodes ------------------------------------------


def hierarchical_all_reduce(local: Link, network: Link, nodes: int, per_node: int, size: float) -> float:
    """Reduce-scatter in the node, all-reduce of each part between nodes, all-gather in the node.

    2(g-1) alpha_l + 2(g-1)/g size beta_l + 2(N-1) alpha_x + 2(N-1)/N size/g beta_x, where the ``per_node`` (g)
    all-reduces between nodes run at once and share the node's network link, so beta_x is g times the link's.
    """
    inside = ring_reduce_scatter(local, per_node, size) + ring_all_gather(local, per_node, size)
    between = ring_all_reduce_traffic(nodes, size / per_node)
    return inside + seconds(network, Traffic(between.messages, between.sent * per_node, True))


def hierarchical_all_to_all(local: Link, network: Link, nodes: int, per_node: int, size: float) -> float:
    """Exchange inside the node, then once between equal local ranks: N-1 messages instead of Ng-g per device.

    (g-1) alpha_l + (g-1)/g size beta_l + (N-1) alpha_x + (N-1)/N size g beta_x (g devices share the network).
    Source: Tutel (Hwang et al., MLSys 2023), 2DH all-to-all; its two strided copies are not counted.
    """
    between = all_to_all_traffic(nodes, size)
    across = seconds(network, Traffic(between.messages, between.sent * per_node, True))
    return all_to_all(local, per_node, size) + across
