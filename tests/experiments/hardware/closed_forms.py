"""Closed forms of collectives on one link, or on two levels of links: what the rounds of
``hardware.patterns`` must cost.

Sources: Chan et al. 2007 (trees), Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005 (doubling,
halving-doubling, Bruck), Hwang et al., MLSys 2023 (two-level all-to-all).
"""

from __future__ import annotations

from experiments.hardware.collectives import Traffic, seconds
from experiments.hardware.parts import Link


def depth(ranks: int) -> int:
    """ceil(log2 ranks)."""
    return (ranks - 1).bit_length()


def tree_broadcast(link: Link, ranks: int, size: float) -> float:
    """ceil(log2 n) (alpha + size beta): the root sends the whole vector in each round. A reduce is its mirror
    image.
    """
    return seconds(link, Traffic(depth(ranks), depth(ranks) * size, False))


def tree_scatter(link: Link, ranks: int, size: float) -> float:
    """ceil(log2 n) alpha + (n-1)/n size beta: the other half's parts in each round."""
    return seconds(link, Traffic(depth(ranks), (ranks - 1) / ranks * size, False))


def ring_reduce_scatter(link: Link, ranks: int, size: float) -> float:
    """(n-1) alpha + (n-1)/n size beta; an all-gather costs the same."""
    return seconds(link, Traffic(ranks - 1, (ranks - 1) / ranks * size, True))


def doubling_traffic(ranks: int, size: float) -> Traffic:
    """log2 n exchanges of the whole vector; other than a power of two folds in and out."""
    rounds = ranks.bit_length() - 1 + (2 if ranks & (ranks - 1) else 0)
    return Traffic(rounds, rounds * size, True)


def halving_doubling_traffic(ranks: int, size: float) -> Traffic:
    """2 log2 n exchanges, 2(n-1)/n of the vector, plus folds."""
    power, folds = 1 << (ranks.bit_length() - 1), 2 if ranks & (ranks - 1) else 0
    return Traffic(2 * depth(power) + folds, (2 * (power - 1) / power + folds) * size, True)


def doubling_all_reduce(link: Link, ranks: int, size: float) -> float:
    """log2 n (alpha + size beta) for a power of two."""
    return seconds(link, doubling_traffic(ranks, size))


def halving_doubling_all_reduce(link: Link, ranks: int, size: float) -> float:
    """2 log2 n alpha + 2(n-1)/n size beta for a power of two."""
    return seconds(link, halving_doubling_traffic(ranks, size))


def pairwise_all_to_all(link: Link, ranks: int, size: float) -> float:
    """(n-1) alpha + (n-1)/n size beta."""
    return ring_reduce_scatter(link, ranks, size)


def bruck_all_to_all(link: Link, ranks: int, size: float) -> float:
    """ceil(log2 n) (alpha + size/2 beta)."""
    return seconds(link, Traffic(depth(ranks), depth(ranks) * size / 2, True))


def permute(link: Link, ranks: int, size: float) -> float:
    """alpha + size beta; nothing for one rank."""
    return seconds(link, Traffic(1, size, True)) if ranks > 1 else 0.0


def hierarchical_all_reduce(local: Link, network: Link, nodes: int, per_node: int, size: float) -> float:
    """Reduce-scatter in the node, all-reduce of each part between nodes, all-gather in the node.

    2(g-1) alpha_l + 2(g-1)/g size beta_l + 2(N-1) alpha_x + 2(N-1)/N size/g beta_x, where the ``per_node``
    (g) all-reduces between nodes run at once and share the node's network link, so beta_x is g times the
    link's.
    """
    between = Traffic(2 * (nodes - 1), 2 * (nodes - 1) / nodes * size, True)
    return 2 * ring_reduce_scatter(local, per_node, size) + seconds(network, between)


def hierarchical_all_to_all(local: Link, network: Link, nodes: int, per_node: int, size: float) -> float:
    """Exchange inside the node, then once between equal local ranks: N-1 messages instead of Ng-g per device.

    (g-1) alpha_l + (g-1)/g size beta_l + (N-1) alpha_x + (N-1)/N size g beta_x (g devices share the network).
    The two strided copies are not counted.
    """
    between = Traffic(nodes - 1, (nodes - 1) / nodes * size * per_node, True)
    return pairwise_all_to_all(local, per_node, size) + seconds(network, between)
