"""One composition: how much of each part is used, the moves that follow, and its least time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.memory.interface import (
    Drop,
    Lineage,
    MemoryMachine,
    MemoryMove,
    Offload,
    Prefetch,
    Recompute,
)
from experiments.memory.policies.combined.copies import Absence, begin_returns, lightened, longest_idle
from experiments.memory.policies.combined.load import LoadCount
from experiments.memory.policies.combined.recomputation import batch_passes
from experiments.memory.policies.combined.state import StatePlaces
from experiments.workloads.step import Floats, Step


@dataclass(frozen=True)
class Composition:
    """How much of each part of a plan is used.

    - ``on_host``: parts of the update that run on the host, the first so many.
    - ``streamed``: whether their parameters pass through the device layer by layer.
    - ``stride``: places at which one activation leads on, from border to border.
    - ``dropped``: activations of each micro-batch that are recomputed, the first so many of the ranking,
    - ``except_for``: but for these of them.
    """

    on_host: int = 0
    streamed: bool = False
    stride: int = 1
    dropped: int = 0
    except_for: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Composed:
    """A composition's moves and what they cost in bytes.

    ``peak``: the most bytes on the device if every copy were over at once; ``offloaded`` and ``recomputed``:
    bytes that are sent away and that are computed once more.
    """

    moves: tuple[MemoryMove, ...]
    peak: int
    offloaded: int
    recomputed: int


class Composer:
    """Makes the plans of compositions for one step on one machine."""

    def __init__(self, step: Step, machine: MemoryMachine) -> None:
        self.step, self.machine = step, machine
        self.lineage = Lineage(step)
        self.state = StatePlaces(step)
        self.passes = batch_passes(step)
        self.counting = LoadCount(step, self.lineage)
        self.uses: list[list[int]] = step.uses.lists()
        self._again: dict[tuple[int, int, frozenset[int]], list[MemoryMove]] = {}

    @property
    def places(self) -> int:
        """Places of a forward pass at which one activation leads on."""
        return len(self.passes[0].forward.candidates)

    def recomputation(self, composition: Composition) -> list[MemoryMove]:
        key = (composition.stride, composition.dropped, composition.except_for)
        if key not in self._again:
            self._again[key] = [move for one in self.passes for move in one.recompute(*key)]
        return self._again[key]

    def least_seconds(self, composition: Composition) -> float:
        """The passes, what runs again, and the update."""
        seconds, update = self.step.ops.seconds, self.state.update
        reruns = _reruns(self.recomputation(composition))
        again = sum(float(seconds[list(move.ops)].sum()) for move in reruns)
        passes = float(seconds.sum() - (seconds[list(update.ops)].sum() if update else 0.0))
        return passes + again + self.state.update_seconds(composition.on_host)

    def compose(self, composition: Composition, limit: int) -> Composed:
        """State, recomputation, and as many activations sent away as ``limit`` bytes ask for."""
        count, streamed = composition.on_host, composition.streamed
        again = self.recomputation(composition)
        reruns = _reruns(again)
        visits = self.state.absences(count, reruns) if streamed else []
        load = lightened(self.counting.load(again, self.state.on_host(count)), visits)
        start = self._starts(count, reruns)
        leaving = longest_idle(self._idle(again, reruns), load, limit, start)
        load = lightened(load, leaving)
        away = [absence for absence in (*leaving, *visits) if absence.back < len(self.step.ops)]
        returns = begin_returns(away, limit - load, start, self.machine)
        moves = [
            *self._prefetches(returns, {visit.tensor for visit in visits}),
            *self.state.moves(count, streamed, reruns),
            *again,
            *(self._leave(absence) for absence in leaving),
        ]
        dropped = [move.tensor for move in again if isinstance(move, Drop)]
        return Composed(
            tuple(moves),
            int(load.max(initial=0)),
            sum(absence.bytes for absence in leaving),
            int(self.step.tensors.bytes[dropped].sum()),
        )

    def _prefetches(self, returns: Sequence[Absence], streamed: set[int]) -> list[MemoryMove]:
        """In the order of needs; the host keeps its copy of a parameter."""
        return [Prefetch(a.back, a.tensor, keep=a.tensor in streamed) for a in returns]

    def _leave(self, absence: Absence) -> Offload:
        """The copy out begins when the tensor has been written for the last time before it goes."""
        written = max(op for op in self.lineage.writers[absence.tensor] if op < absence.gone)
        return Offload(written + 1, absence.tensor, absence.gone - 1)

    def _idle(self, again: Sequence[MemoryMove], reruns: Sequence[Recompute]) -> Iterator[Absence]:
        """What could leave after its last use in a forward pass, until an op or a rerun needs it.

        Copies that take longer for their latency than for their bytes are left out.
        """
        needs: dict[int, int] = {}
        for move in reversed(reruns):
            needs.update((tensor, move.at) for tensor in self.lineage.external(move.ops))
        dropped = {move.tensor for move in again if isinstance(move, Drop)}
        least = max(1, int(self.machine.out.latency * self.machine.out.bandwidth))
        size = self.counting.bytes
        for one in self.passes:
            loss = one.begin + one.forward.loss
            for tensor in dict.fromkeys((*(saved.tensor for saved in one.activations), *needs)):
                end = self._idle_end(tensor, loss, needs.get(tensor))
                if end and tensor not in dropped and size[tensor] >= least:
                    yield Absence(tensor, size[tensor], *end)

    def _idle_end(self, tensor: int, loss: int, need: int | None) -> tuple[int, int] | None:
        """The ops without ``tensor``, from its last use up to ``loss`` to the first need after that."""
        if self.lineage.persistent[tensor]:
            return None
        before = [use for use in self.uses[tensor] if use <= loss]
        after = [use for use in self.uses[tensor] if use > loss]
        after += [need] if need is not None and need > loss else []
        wide = before and after and min(after) > before[-1] + 2
        return (before[-1] + 1, min(after)) if wide else None

    def _starts(self, on_host: int, reruns: Sequence[Recompute]) -> Floats:
        """When each op begins if nothing stalls."""
        seconds = self.step.ops.seconds.copy()
        part = self.state.on_host(on_host)
        if part:
            seconds[list(part.ops)] = 0.0
        for move in reruns:
            seconds[move.at] += self.step.ops.seconds[list(move.ops)].sum()
        found: Floats = np.concatenate(([0.0], np.cumsum(seconds)))
        return found


def _reruns(moves: Sequence[MemoryMove]) -> list[Recompute]:
    return [move for move in moves if isinstance(move, Recompute)]
