"""Costs of collective operations in the alpha-beta model.

A transfer of x bytes costs alpha + x beta: alpha is the link's latency, beta the inverse of its bandwidth per
direction. Each algorithm is described once, by its ``Traffic`` on the critical path; its time on a link
follows. The arithmetic of reductions (gamma) is not counted: on accelerators it is far below the transfer.

``size`` is the bytes of the whole vector (what one rank holds before an all-reduce or after an all-gather,
and what one rank sends in total, its own share included, in an all-to-all); ``ranks`` is the number of
participants.

Source: Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication: theory, practice, and
experience", CCPE 19(13), 2007 (tree and bucket algorithms). These are the formulas that planners and fits ask
for one link; what a collective costs on a topology, by any algorithm, follows from its rounds
(``hardware.patterns``), which take steps, bytes and depths from here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from experiments.hardware.parts import Link


@dataclass(frozen=True)
class Traffic:
    """What the busiest rank does one after another: ``messages`` transfers of ``sent`` bytes together.

    ``both_ways`` says that it receives as much while it sends: free on a duplex link, twice the time
    otherwise.
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


def tree_depth(ranks: int) -> int:
    """ceil(log2 ranks): rounds until a tree has reached every rank."""
    return (ranks - 1).bit_length()


# --- traffic of each algorithm ------------------------------------------------------------------------------


def one_way_traffic(ranks: int, size: float) -> Traffic:
    """Traffic of n-1 steps, each of 1/n of the vector.

    Reduce-scatter and all-gather over a ring, and all-to-all pair by pair.
    """
    _check(ranks, size)
    return Traffic(ranks - 1, (ranks - 1) / ranks * size, True)


def ring_all_reduce_traffic(ranks: int, size: float) -> Traffic:
    """Reduce-scatter, then all-gather: 2(n-1) steps and 2(n-1)/n of the vector per rank."""
    half = one_way_traffic(ranks, size)
    return Traffic(2 * half.messages, 2 * half.sent, True)


def tree_all_reduce_traffic(ranks: int, size: float) -> Traffic:
    """Minimum spanning tree: ceil(log2 n) rounds to one rank and as many back, each of the whole vector."""
    _check(ranks, size)
    return Traffic(2 * tree_depth(ranks), 2 * tree_depth(ranks) * size, False)


# --- seconds on a link --------------------------------------------------------------------------------------


def point_to_point(link: Link, size: float) -> float:
    """alpha + size beta."""
    _check(1, size)
    return seconds(link, Traffic(1, size, False))


def ring_all_reduce(link: Link, ranks: int, size: float) -> float:
    """2(n-1) alpha + 2(n-1)/n size beta."""
    return seconds(link, ring_all_reduce_traffic(ranks, size))


def tree_all_reduce(link: Link, ranks: int, size: float) -> float:
    """2 ceil(log2 n) (alpha + size beta)."""
    return seconds(link, tree_all_reduce_traffic(ranks, size))


def ring_beats_tree_from(link: Link, ranks: int) -> float:
    """Bytes from which the ring all-reduce costs no more than the tree's; 0 where it never costs more.

    With L = ceil(log2 n): 2L(alpha + x beta) = 2(n-1) alpha + 2(n-1)/n x beta gives
    x = alpha (n-1-L) / (beta (L - (n-1)/n)). On a link that is not duplex the ring's beta doubles.
    """
    _check(ranks, 0)
    depth = tree_depth(ranks)
    if ranks - 1 <= depth:
        return 0.0
    share = (ranks - 1) / ranks * (1 if link.duplex else 2)
    return link.latency * link.bandwidth * (ranks - 1 - depth) / (depth - share)
