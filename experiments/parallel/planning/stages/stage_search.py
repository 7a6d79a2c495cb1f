"""PipeDream's dynamic program: stages and their replicas that make the slowest part of a pipeline as fast as
can be.

Source: Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP'19, section
3.1: A(j, m) = min(T(1..j, m), min over k, m' of max(A(k, m - m'), 2 a_k / B, T(k+1..j, m'))), level by level
from the devices of a machine to the machines of a cluster. ``StageSearchRules`` says where the released
planner differs from the paper.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from experiments.core.budget import Budget
from experiments.core.errors import BadInput
from experiments.hardware import Hardware
from experiments.parallel.planning.stages.cuts import Cuts
from experiments.workloads.step import Floats

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class ClusterLevel:
    """``count`` equal parts, joined at ``bandwidth`` bytes/s.

    They are devices of a machine, or machines of a cluster.
    """

    count: int
    bandwidth: float


def levels_of(cluster: Hardware) -> list[ClusterLevel]:
    """Return the levels of a cluster: devices of a machine, then machines.

    A level of one is left out. ``BadInput`` for machines that differ.
    """
    if len({(node.device, node.device_count, node.link) for node in cluster.nodes}) > 1:
        raise BadInput("machines differ", cluster.name, "equal machines: the recurrence counts them")
    found = [
        ClusterLevel(cluster.node.device_count, cluster.node.link.bandwidth),
        ClusterLevel(cluster.node_count, cluster.network.bandwidth),
    ]
    return [level for level in found if level.count > 1] or found[:1]


@dataclass(frozen=True)
class StageSearchRules:
    """What a stage search counts.

    ``added``      a replicated stage takes compute plus synchronization (as released), not the longer of
      both (paper).
    ``transfers``  activations between stages count.
    ``memory``     bytes of a device that a stage must fit, if any.
    """

    added: bool = True
    transfers: bool = True
    memory: float | None = None


@dataclass(frozen=True)
class Span:
    """A stage: from behind cut ``start`` to cut ``end``, on ``replicas`` parts of its level.

    ``start`` -1: the beginning.
    """

    start: int
    end: int
    replicas: int


@dataclass(frozen=True)
class StageSolution:
    """``seconds`` for a mini-batch in steady state (infinite, without stages, when nothing fits).

    ``outer`` are the stages of the last level, each with the stages into which every part of it is divided
    (itself where there is one level). ``candidates``: splits compared.
    """

    seconds: float
    outer: tuple[tuple[Span, tuple[Span, ...]], ...]
    candidates: int


class _Solved:
    """One level: ``best[m]`` and the split behind it, for every start (rows) and end (columns)."""

    def __init__(
        self,
        cuts: Cuts,
        times: Floats,
        level: ClusterLevel,
        below: int,
        rules: StageSearchRules,
        rows: int,
        budget: Budget,
    ) -> None:
        self.cuts, self.times, self.level, self.rules = cuts, times, level, rules
        self.rows, self.budget = rows, budget
        self.parameters = _between(cuts.parameters)
        self.kept = _between(cuts.stash) + self.parameters
        self.reachable = np.isfinite(times)
        self.best: list[Floats] = [np.empty(0)]
        self.split: list[Ints] = [np.empty(0, np.int32)]
        self.share: list[Ints] = [np.empty(0, np.int32)]
        self.candidates = 0
        self._transfer = self._transfers()
        self._costs: list[Floats] = [np.empty(0)]
        for count in range(1, level.count + 1):
            self._solve(count, below)

    def _synchronization_seconds(self, count: int, below: int) -> Floats:
        """Seconds of a stage on ``count`` replicas."""
        exchange = _exchange_seconds(self.level, count, self.parameters, below)
        whole = self.times + exchange if self.rules.added else np.maximum(self.times, exchange)
        return np.where(self.reachable, whole / count, np.inf)

    def _fitting(self, seconds: Floats, kept: Floats, behind: int, replicas: int) -> Floats:
        """Infinite where the mini-batches in flight do not fit, one for each part from the stage on, shared
        by replicas.

        (The released check leaves the stage itself out, so that a last stage would need no memory.)
        """
        if self.rules.memory is None:
            return seconds
        held = -(-(behind + replicas) // replicas)
        return np.where(held * kept > self.rules.memory, np.inf, seconds)

    def _transfers(self) -> Floats:
        """Seconds that a stage between two cuts, on one part, receives its input and sends its output. Shape:
        (k, j).
        """
        if not self.rules.transfers:
            return np.zeros((len(self.cuts), len(self.cuts)))
        sent = 2 * self.cuts.output / self.level.bandwidth
        leaving = np.append(sent[:-1], 0.0)
        slower: Floats = np.maximum(sent[:, None], leaving[None, :])
        return slower

    def _solve(self, count: int, below: int) -> None:
        behind = self.level.count - count
        best = self._fitting(self._synchronization_seconds(count, below), self.kept, behind, count)[
            : self.rows
        ]
        self._costs.append(np.maximum(self._synchronization_seconds(count, 1)[1:], self._transfer / count))
        split, share = np.full(best.shape, -1, np.int32), np.full(best.shape, count, np.int32)
        for replicas in range(1, count):
            costs = self._fitting(self._costs[replicas], self.kept[1:], behind, replicas)
            self._improve(best, split, share, self.best[count - replicas], costs, replicas)
        self.best.append(best)
        self.split.append(split)
        self.share.append(share)

    def _improve(
        self, best: Floats, split: Ints, share: Ints, earlier: Floats, costs: Floats, replicas: int
    ) -> None:
        """A last stage of ``replicas`` behind each cut, after the ``earlier`` stages, within the budget."""
        for end in range(1, len(self.cuts)):
            inside = np.flatnonzero(self.cuts.before[:, end])
            if not len(inside) or not self.budget.take(len(best) * len(inside)):
                continue
            slowest = np.maximum(earlier[:, inside], costs[inside, end])
            chosen = slowest.argmin(axis=1)
            found = slowest[np.arange(len(slowest)), chosen]
            better = found < best[:, end]
            best[better, end] = found[better]
            split[better, end] = inside[chosen[better]]
            share[better, end] = replicas
            self.candidates += slowest.size

    def spans(self, start: int, end: int) -> tuple[Span, ...]:
        """The stages between two cuts on all parts of the level, first stage first."""
        found, count = [], self.level.count
        while True:
            border, replicas = int(self.split[count][start + 1, end]), int(self.share[count][start + 1, end])
            found.append(Span(max(border, start), end, replicas))
            if border < 0:
                return tuple(reversed(found))
            end, count = border, count - replicas


def _exchange_seconds(level: ClusterLevel, count: int, parameters: Floats, below: int) -> Floats:
    """Of gradients among ``count`` replicas: 4 (m-1)/m bytes a parameter byte (all-reduce, there
    and back).
    """
    found: Floats = 4 * (count - 1) * parameters / (level.bandwidth * count) / below
    return found


def _between(column: Floats) -> Floats:
    """``column[j]`` less what precedes: row 0 from the beginning, row ``k + 1`` from behind cut ``k``."""
    difference: Floats = column[None, :] - np.append(0.0, column)[:, None]
    return difference


def search(
    cuts: Cuts, levels: Sequence[ClusterLevel], rules: StageSearchRules, budget: Budget | None = None
) -> StageSolution:
    """The fastest stages; ``seconds`` is infinite when nothing fits. One or two levels, inner first.

    ``budget`` bounds the splits that are compared; a run of layers whose splits are not is one stage.
    """
    budget = budget or Budget(sys.maxsize)
    reachable = np.vstack([np.ones(len(cuts), np.bool_), cuts.before])
    times = np.where(reachable, _between(cuts.seconds), np.inf)
    inner = None
    candidates, below = 0, 1
    if len(levels) == 2:
        inner = _Solved(cuts, times, levels[0], below, rules, len(cuts) + 1, budget)
        times, below, candidates = inner.best[-1], levels[0].count, inner.candidates
    outer = _Solved(cuts, times, levels[-1], below, rules, 1, budget)
    seconds = float(outer.best[-1][0, -1])
    if not np.isfinite(seconds):
        return StageSolution(seconds, (), candidates + outer.candidates)
    whole = outer.spans(-1, len(cuts) - 1)
    parts = tuple((span, inner.spans(span.start, span.end) if inner else (span,)) for span in whole)
    return StageSolution(seconds, parts, candidates + outer.candidates)


def data_parallel_seconds(cuts: Cuts, levels: Sequence[ClusterLevel], rules: StageSearchRules) -> float:
    """A mini-batch with the whole model on every device, level by level, by the same rules."""
    seconds, below = float(cuts.seconds[-1]), 1
    for level in levels:
        exchange = float(_exchange_seconds(level, level.count, cuts.parameters[-1], below))
        seconds = (seconds + exchange if rules.added else max(seconds, exchange)) / level.count
        below = level.count
    return seconds
