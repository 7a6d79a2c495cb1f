"""Einsums in loops: an all-gather before one, or a reduce-scatter after one, in as many parts as there are
ranks.

Source: Wang et al., "Overlap Communication with Dependent Computation via Decomposition in Large Deep
Learning Models", ASPLOS'23, and the gate as XLA's partitioner of dot operations has it. Each part of the
computation overlaps with a permute that passes a shard (or an accumulator) to a neighbor; the first part of
the one and the last of the other need none.
"""

from __future__ import annotations

#: A collective shorter than this is not worth a loop, in seconds.
EPSILON = 1e-9


def blocking_seconds(compute: float, collective: float) -> float:
    """Return the seconds of computation and collective one after the other."""
    return compute + collective


def looped_seconds(compute: float, collective: float, ranks: int, slowdown: float) -> float:
    """Return the gate's estimate of a loop: the longer of both, and what the ends do not hide.

    ``slowdown`` is how much longer the loop's permutes take together than the collective.
    """
    permutes = slowdown * collective
    return max(compute, permutes) + 2 * permutes / ranks


def loop_pays(compute: float, collective: float, ranks: int, slowdown: float) -> bool:
    looped = looped_seconds(compute, collective, ranks, slowdown)
    return collective > EPSILON and looped < blocking_seconds(compute, collective)
