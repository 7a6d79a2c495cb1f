"""What it costs to recompute tensors when others, also to be recomputed, are among their sources (Capuchin,
ASPLOS'20).

``seconds`` is one rerun of a tensor from its nearest sources; a tensor that reruns of others need is made
once for each of them too: ``times`` says how often. Choosing one tensor changes the others: those made from
it become more expensive by its own rerun, and those it is made from are run once more for every tensor that
reaches them through it.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
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
    """Candidates not chosen yet, and the chosen ones, with their present costs.

    ``best`` is asked once for each candidate: a heap has every cost that an open one had, the present one
    among them. Each tensor knows what is, or was, made from it.
    """

    def __init__(self, reruns: Iterable[Rerun]) -> None:
        self.open: dict[int, Rerun] = {rerun.tensor: rerun for rerun in reruns}
        self.chosen: dict[int, Rerun] = {}
        self._made_from: dict[int, set[int]] = defaultdict(set)
        for rerun in self.open.values():
            for source in rerun.sources:
                self._made_from[source].add(rerun.tensor)
        self._ranked = [_rank(rerun) for rerun in self.open.values()]
        heapq.heapify(self._ranked)

    def drop(self, tensor: int) -> None:
        """``tensor`` stays, or is swapped: it is no candidate any more and remains a source."""
        self.open.pop(tensor, None)

    def best(self) -> Rerun | None:
        """The open candidate that saves the most bytes per second (ties: the lowest tensor)."""
        while self._ranked:
            rerun = self.open.get(self._ranked[0][1])
            if rerun and _rank(rerun) == self._ranked[0]:
                return rerun
            heapq.heappop(self._ranked)
        return None

    def choose(self, tensor: int) -> None:
        """``tensor`` is recomputed: its sources take its place wherever it was a source."""
        picked = self.open.pop(tensor)
        users = self._made_from.pop(tensor, set())
        for source in picked.sources:
            self._made_from[source] |= users
        chosen = users & self.chosen.keys()
        for other in chosen:
            self.chosen[other] = _without(self.chosen[other], picked)
        for other in users & self.open.keys():
            rerun = self.open[other]
            longer = replace(_without(rerun, picked), seconds=rerun.seconds + picked.seconds)
            self._reopen(replace(longer, times=1 + self._used_by(other)))
        self.chosen[tensor] = replace(picked, times=1 + len(chosen))
        for source in picked.sources & self.open.keys():
            self._reopen(replace(self.open[source], times=1 + self._used_by(source)))

    def _reopen(self, rerun: Rerun) -> None:
        """``rerun`` is what its tensor costs from now on."""
        self.open[rerun.tensor] = rerun
        heapq.heappush(self._ranked, _rank(rerun))

    def _used_by(self, tensor: int) -> int:
        """Chosen tensors that are made from ``tensor``."""
        return len(self._made_from[tensor] & self.chosen.keys())

    def table(self) -> Mapping[int, Rerun]:
        return {**self.open, **self.chosen}


def _rank(rerun: Rerun) -> tuple[float, int]:
    """The less the better, as ``best`` has it."""
    return -rerun.saving, rerun.tensor


def _without(rerun: Rerun, picked: Rerun) -> Rerun:
    return replace(rerun, sources=(rerun.sources - {picked.tensor}) | picked.sources)
