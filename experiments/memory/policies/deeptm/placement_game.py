"""Placing tensors as a game: at every use of a tensor the player says where it is until its next use, and
then.

The slow side is memory that ops can use in place, or the host, from which a tensor must come back for its
use. A placement on the device that finds no free bytes there is refused. An episode ends with a placement for
the whole step.
"""

from __future__ import annotations

import functools
import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.memory.interface import InPlace, MemoryMachine, MemoryMove, Offload, PlaceTensor, Prefetch
from experiments.memory.planning.locations import access_seconds
from experiments.memory.planning.swaps import (
    Gap,
    TensorSwap,
    UnstalledClock,
    earliest_return,
    moves_of,
    within,
)
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats, Step


@dataclass(frozen=True)
class Turn:
    """One decision of the game: where ``tensor`` is between two uses.

    From the op after its use ``after`` (-1: where it is made) to its use ``before``.

    One that ``wraps``, of persistent tensors, leads from the last use to the first in the next step; it is
    taken first.
    """

    tensor: int
    after: int
    before: int
    wraps: bool = False


class Board:
    """The tensors that may move, and their turns in the order of the step.

    It says what each decision costs in seconds.
    """

    def __init__(self, step: Step, machine: MemoryMachine, least_bytes: int) -> None:
        self.step, self.machine, self.clock = step, machine, UnstalledClock(step)
        self.in_place = machine.remote_bytes > 0
        self.tier = "remote" if self.in_place else "host"
        self.sizes: list[int] = step.tensors.bytes.tolist()
        large = (step.tensors.bytes >= least_bytes) & (step.last_use >= 0)
        self.tensors: list[int] = np.nonzero(large)[0].tolist()
        self.turns = sorted(self._turns(), key=_when)
        self.least_load = self._least_load()

    def _turns(self) -> Iterator[Turn]:
        for tensor in self.tensors:
            uses = self.step.uses[tensor].tolist()
            if self.step.persistent[tensor]:
                yield Turn(tensor, uses[-1], uses[0], wraps=True)
            elif self.in_place:
                yield Turn(tensor, -1, uses[0])
            for after, before in itertools.pairwise(uses):
                if self.in_place or before > after + 1:
                    yield Turn(tensor, after, before)

    def resident_ops(self, turn: Turn) -> tuple[slice, ...]:
        """The ops for which a tensor on the device needs bytes by this decision."""
        end = turn.before + 1 if self.in_place else turn.before
        if turn.wraps:
            return slice(turn.after + 1, len(self.step.ops)), slice(0, end)
        return (slice(turn.before if turn.after < 0 else turn.after + 1, end),)

    def _least_load(self) -> Ints:
        """Bytes by op if every decision were against the device."""
        load = self.step.live_bytes.copy()
        for turn in self.turns:
            for ops in self.resident_ops(turn):
                load[ops] -= self.sizes[turn.tensor]
        return load

    def cost(self, turn: Turn, here: bool, stays: bool) -> float:
        """Exposed seconds of a decision: copies beyond the idle time, and the next use on slow memory."""
        size, idle = self.sizes[turn.tensor], self._idle(turn)
        out, back = self.machine.out_time(size, self.tier), self.machine.back_time(size, self.tier)
        if not self.in_place:
            return 0.0 if stays else max(0.0, out + back - idle)
        if stays:
            return 0.0 if here else max(0.0, back - idle)
        leaving = max(0.0, out - idle) if here and turn.after >= 0 else 0.0
        return leaving + max(0.0, self.access(turn) - float(self.step.ops.seconds[turn.before]))

    def _idle(self, turn: Turn) -> float:
        return 0.0 if turn.after < 0 else self.clock.idle(self.gap(turn))

    def gap(self, turn: Turn) -> Gap:
        return Gap(turn.tensor, self.sizes[turn.tensor], turn.after, turn.before, turn.wraps)

    def access(self, turn: Turn) -> float:
        """Seconds in which slow memory serves the use after the decision."""
        written = turn.tensor in self.step.outputs[turn.before]
        return access_seconds(self.step, self.machine, turn.before, self.sizes[turn.tensor], written)

    def heat(self) -> Floats:
        """Return how hot each tensor is.

        The mean of accesses, 1 / reuse distance, size and lifetime, each relative to the largest.
        """
        columns = []
        for tensor in self.tensors:
            uses = self.step.uses[tensor]
            distance = float(np.diff(uses).mean()) if len(uses) > 1 else float(len(self.step.ops))
            columns.append((len(uses), 1 / max(1.0, distance), self.sizes[tensor], uses[-1] - uses[0] + 1))
        values = np.array(columns, np.float64).reshape(-1, 4)
        found = np.zeros(len(self.sizes))
        found[self.tensors] = (values / np.maximum(values.max(axis=0, initial=0), 1e-300)).mean(axis=1)
        return found

    def moves(self, stays: Sequence[bool]) -> tuple[MemoryMove, ...]:
        """The moves of an episode's decisions, one for each turn."""
        if self.in_place:
            return self._in_place(stays)
        swaps = [swap for swap, here in zip(self._swaps, stays, strict=True) if not here]
        return moves_of(within(self.step, swaps, self.machine.capacity))

    @functools.cached_property
    def _swaps(self) -> list[TensorSwap]:
        """What each turn is where it is decided against the device."""
        return [TensorSwap(gap, self._early(gap)) for gap in map(self.gap, self.turns)]

    def _early(self, gap: Gap) -> int:
        seconds = self.machine.back_time(gap.bytes, self.tier)
        return min(gap.before, self.clock.walk_back(gap.before, seconds, earliest_return(gap)))

    def _in_place(self, stays: Sequence[bool]) -> tuple[MemoryMove, ...]:
        """Copies where the place changes between two uses; ops that use what is not here take it where it is
        resident.
        """
        moves: list[MemoryMove] = []
        used: dict[int, list[Turn]] = defaultdict(list)
        places: dict[int, list[tuple[Turn, bool]]] = defaultdict(list)
        for turn, here in zip(self.turns, stays, strict=True):
            places[turn.tensor].append((turn, here))
            if not here:
                used[turn.before].append(turn)
        for tensor, row in places.items():
            moves += self._copies(tensor, row)
        for op, turns in used.items():
            lasting = max(float(self.step.ops.seconds[op]), sum(self.access(turn) for turn in turns))
            moves.append(InPlace(op, tuple(sorted(turn.tensor for turn in turns)), lasting))
        order = {"place": 0, "offload": 1, "prefetch": 2}
        return tuple(sorted(moves, key=lambda move: (move.at, order.get(move.action, 3))))

    def _copies(self, tensor: int, row: Sequence[tuple[Turn, bool]]) -> Iterator[MemoryMove]:
        here = row[0][1]
        if self.step.persistent[tensor] and not here:
            yield PlaceTensor(0, tensor, self.tier)
        for turn, stays in row[1:]:
            if here and not stays:
                yield Offload(turn.after + 1, tensor, turn.after, self.tier)
            elif stays and not here:
                yield Prefetch(turn.before, tensor)
            here = stays
        if self.step.persistent[tensor] and here != row[0][1]:
            last = row[0][0].after
            yield Offload(last + 1, tensor, last, self.tier) if here else Prefetch(last + 1, tensor)


def _when(turn: Turn) -> tuple[int, int, int]:
    """In the order of the step; turns around its end begin it."""
    return -1 if turn.wraps else turn.after, turn.before, turn.tensor


def bin_of(value: float, edges: Sequence[float]) -> int:
    return bisect_right(edges, value)
