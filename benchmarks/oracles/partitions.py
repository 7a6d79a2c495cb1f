"""Every way to divide a small graph into kernels: what a greedy connection can be compared with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from experiments.compilation.policies.welder.connection import WeldedKernel, Welding, launch_order

#: Nine operators have 21,147 partitions.
MOST_OPERATORS = 9


@dataclass(frozen=True)
class Best:
    """The fastest kernels, how many partitions there are, and how many of them can be launched."""

    kernels: tuple[WeldedKernel, ...]
    partitions: int
    valid: int

    @property
    def seconds(self) -> float:
        return sum(kernel.seconds for kernel in self.kernels)


def partitions(names: Sequence[str]) -> Iterator[tuple[frozenset[str], ...]]:
    """All set partitions of ``names``."""
    if not names:
        yield ()
        return
    last = names[-1]
    for rest in partitions(names[:-1]):
        yield (*rest, frozenset({last}))
        for place, group in enumerate(rest):
            yield (*rest[:place], group | {last}, *rest[place + 1 :])


def best_partition(welding: Welding) -> Best:
    """The partition of least modeled time; ``ValueError`` for more than ``MOST_OPERATORS`` operators."""
    names = [node.name for node in welding.graph.nodes]
    if len(names) > MOST_OPERATORS:
        raise ValueError(f"{len(names)} operators have too many partitions; at most {MOST_OPERATORS}")
    known: dict[frozenset[str], WeldedKernel | None] = {}

    def kernel(group: frozenset[str]) -> WeldedKernel | None:
        if group not in known:
            known[group] = welding.together(group)
        return known[group]

    best, count, valid = welding.unfused_kernels(), 0, 0
    for division in partitions(names):
        count += 1
        kernels = [made for group in division if (made := kernel(group)) is not None]
        if len(kernels) < len(division) or launch_order(kernels, welding.graph) is None:
            continue
        valid += 1
        best = min(best, tuple(kernels), key=lambda chosen: sum(made.seconds for made in chosen))
    return Best(best, count, valid)
