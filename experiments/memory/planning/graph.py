"""The data flow of a step as graph-based planners see it: who feeds whom, levels, critical path, ancestors.

An edge leads from the last op that wrote a tensor to each op that touches it after that. View ops write
nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from experiments.memory.interface import Lineage
from experiments.workloads.step import Step


class DataFlow:
    """Edges of a step; ops are numbered as the step runs them, which is a topological order."""

    def __init__(self, step: Step) -> None:
        self.step = step
        writes, last = Lineage(step).writes, [-1] * len(step.tensors)
        self.feeders: list[tuple[int, ...]] = []
        for op, row in enumerate(step.touched):
            sources = {last[tensor] for tensor in row.tolist()} - {-1}
            self.feeders.append(tuple(sorted(sources)))
            for tensor in writes[op]:
                last[tensor] = op

    @functools.cached_property
    def level(self) -> list[int]:
        """Most edges on a path from a source of the graph to each op."""
        levels: list[int] = []
        for sources in self.feeders:
            levels.append(1 + max((levels[source] for source in sources), default=-1))
        return levels

    @functools.cached_property
    def completion(self) -> list[float]:
        """Seconds of the longest path that ends with each op, the op included."""
        done: list[float] = []
        for sources, seconds in zip(self.feeders, self.step.ops.seconds.tolist(), strict=True):
            done.append(seconds + max((done[source] for source in sources), default=0.0))
        return done

    @functools.cached_property
    def ancestors(self) -> list[int]:
        """For each op a bit set of the ops that reach it (bit ``i``: op ``i``)."""
        found: list[int] = []
        for sources in self.feeders:
            mask = 0
            for source in sources:
                mask |= found[source] | 1 << source
            found.append(mask)
        return found

    @functools.cached_property
    def by_level(self) -> list[int]:
        """For each level a bit set of its ops."""
        masks = [0] * (max(self.level, default=-1) + 1)
        for op, level in enumerate(self.level):
            masks[level] |= 1 << op
        return masks


def members(mask: int) -> Iterator[int]:
    """The ops of a bit set, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def between(first: int, end: int) -> int:
    """The bit set of ops ``[first, end)``."""
    return ((1 << max(0, end - first)) - 1) << first if end > first else 0
