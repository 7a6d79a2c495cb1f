"""Bubble of a pipeline, and seconds of an all-reduce by tree and by ring."""

from __future__ import annotations

from experiments.estimates.estimate import Estimate
from experiments.hardware import collectives
from experiments.hardware.parts import Link


def pipeline_bubble(stages: int, microbatches: int) -> float:
    """Idle share of a synchronous pipeline: (D-1) / (D-1+m)."""
    return (stages - 1) / (stages - 1 + microbatches)


def estimate_all_reduce(size: float, link: Link, ranks: int) -> tuple[Estimate, ...]:
    """Seconds to all-reduce ``size`` bytes by minimum spanning tree and by ring, and where they cross."""
    source = "Chan et al., Collective communication, CCPE 2007"
    tree = collectives.tree_all_reduce(link, ranks, size)
    ring = collectives.ring_all_reduce(link, ranks, size)
    crossing = collectives.ring_beats_tree_from(link, ranks)
    return (
        Estimate("all-reduce by tree", tree, "s", source, "2 ceil(log2 n) (alpha + bytes beta)"),
        Estimate("all-reduce by ring", ring, "s", source, "2(n-1) alpha + 2(n-1)/n bytes beta"),
        Estimate(
            "ring pays from",
            crossing,
            "bytes",
            source,
            "alpha (n-1-L) / (beta (L-(n-1)/n)), L = ceil(log2 n)",
        ),
    )
