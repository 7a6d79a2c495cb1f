"""What it costs to recompute tensors when others, also to be recomputed, are among their sources (Capuchin,
ASPLOS'20).

``seconds`` is one rerun of a tensor from its nearest sources; a tensor that reruns of others need is made
once for each of them too: ``times`` says how often. Choosing one tensor changes the others: those made from
it become more expensive by its own rerun, and those it is made from are run once more for every tensor that
reaches them through it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Rerun:
    """The recomputation of one tensor and its cost.

    Its ``bytes``, the ``seconds`` from its ``sources`` to it, and how many ``times`` it would run.
    """

    tensor: int
    bytes: int
    seconds: float
    sources: frozenset[int]
    times: int = 1

    @property
    def cost(self) -> float:
        return self.seconds * self.times

    @property
    def saving(self) -> float:
        """Bytes saved per second of recomputation (MSPS)."""
        return self.bytes / self.cost if self.cost > 0 else float("inf")


class LineageCosts:
    """Candidates not chosen yet, and the chosen ones, with their present costs."""

    def __init__(self, reruns: Iterable[Rerun]) -> None:
        self.open: dict[int, Rerun] = {rerun.tensor: rerun for rerun in reruns}
        self.chosen: dict[int, Rerun] = {}

    def drop(self, tensor: int) -> None:
        """``tensor`` stays, or is swapped: it is no candidate any more and remains a source."""
        self.open.pop(tensor, None)

    def best(self) -> Rerun | None:
        """The open candidate that saves the most bytes per second (ties: the lowest tensor)."""
        return max(self.open.values(), key=lambda rerun: (rerun.saving, -rerun.tensor), default=None)

    def choose(self, tensor: int) -> None:
        """``tensor`` is recomputed: its sources take its place wherever it was a source."""
        picked = self.open.pop(tensor)
        users = 0
        for other, rerun in self.chosen.items():
            if tensor in rerun.sources:
                self.chosen[other] = _without(rerun, picked)
                users += 1
        for other, rerun in self.open.items():
            if tensor in rerun.sources:
                longer = replace(_without(rerun, picked), seconds=rerun.seconds + picked.seconds)
                self.open[other] = replace(longer, times=1 + self._used_by(other))
        self.chosen[tensor] = replace(picked, times=1 + users)
        for source in picked.sources & self.open.keys():
            self.open[source] = replace(self.open[source], times=1 + self._used_by(source))

    def _used_by(self, tensor: int) -> int:
        """Chosen tensors that are made from ``tensor``."""
        return sum(tensor in rerun.sources for rerun in self.chosen.values())

    def table(self) -> Mapping[int, Rerun]:
        return {**self.open, **self.chosen}


def _without(rerun: Rerun, picked: Rerun) -> Rerun:
    return replace(rerun, sources=(rerun.sources - {picked.tensor}) | picked.sources)
