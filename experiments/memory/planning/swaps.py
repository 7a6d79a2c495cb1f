"""Swaps: which idle stretch of which tensor is spent on a tier, when it comes back, and what that does to the
load.

A *gap* is the stretch between two uses of a tensor. A *swap* uses a gap: the tensor leaves after the first
use and its way back begins before op ``back``. Times are those of the unstalled step.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiments.memory.interface import MemoryMove, Offload, PlaceTensor, Prefetch
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Step


@dataclass(frozen=True)
class Gap:
    """``tensor`` is used by op ``after``, next by op ``before``, and by none between.

    One that ``wraps`` (persistent tensors only) begins after the last use and ends at the first use in the
    next step.
    """

    tensor: int
    bytes: int
    after: int
    before: int
    wraps: bool = False

    def crosses(self, op: int) -> bool:
        """Whether ``op`` runs within the gap."""
        if self.wraps:
            return op > self.after or op < self.before
        return self.after < op < self.before


@dataclass(frozen=True)
class TensorSwap:
    """The tensor of ``gap`` leaves before op ``leave`` and its way back begins before op ``back``.

    ``leave`` -1: at once. ``gap.after < leave`` (up to the step's end where the gap wraps), ``back <=
    gap.before``.
    """

    gap: Gap
    back: int
    tier: str = "host"
    leave: int = -1

    @property
    def out(self) -> int:
        """The op before which the copy out begins."""
        return self.gap.after + 1 if self.leave < 0 else self.leave


def gaps_of(step: Step, least_bytes: int = 1, wrapping: bool = False) -> list[Gap]:
    """Gaps of at least one whole op, by tensor and start.

    With ``wrapping`` those of persistent tensors around the end.
    """
    persistent, sizes = step.persistent.tolist(), step.tensors.bytes.tolist()
    count, found = len(step.ops), []
    for tensor, row in enumerate(step.uses):
        uses = row.tolist()
        if sizes[tensor] < max(1, least_bytes) or not uses:
            continue
        pairs = itertools.pairwise(uses)
        found += [Gap(tensor, sizes[tensor], a, b) for a, b in pairs if b > a + 1]
        if wrapping and persistent[tensor] and uses[0] + count > uses[-1] + 1:
            found.append(Gap(tensor, sizes[tensor], uses[-1], uses[0], True))
    return found


class UnstalledClock:
    """When ops start if nothing stalls: ``start[i]`` in seconds, ``start[len(ops)]`` is the step's end."""

    def __init__(self, step: Step) -> None:
        self.start = np.concatenate(([0.0], np.cumsum(step.ops.seconds)))
        self._starts: list[float] = self.start.tolist()

    def idle(self, gap: Gap) -> float:
        """Seconds between the end of the use before the gap and the start of the use after it."""
        seconds = self._starts[gap.before] - self._starts[gap.after + 1]
        return seconds + self._starts[-1] if gap.wraps else seconds

    def walk_back(self, before: int, seconds: float, floor: int = 0) -> int:
        """The latest op that starts ``seconds`` before op ``before``, ``floor`` at the earliest."""
        latest = self._starts[before] - seconds * (1 - 1e-12)
        return max(floor, int(np.searchsorted(self.start[: before + 1], latest, side="right")) - 1)


def earliest_return(gap: Gap) -> int:
    """The first op before which the tensor of ``gap`` could be fetched again."""
    return 0 if gap.wraps else gap.after + 2


def lighten(load: Ints, swap: TensorSwap) -> None:
    """Take the bytes of an absent tensor out of ``load`` (bytes by op), in place."""
    if swap.gap.wraps:
        load[: swap.back] -= swap.gap.bytes
        load[swap.out :] -= swap.gap.bytes
    else:
        load[swap.out : swap.back] -= swap.gap.bytes


def load_under(step: Step, swaps: Iterable[TensorSwap]) -> Ints:
    """Bytes on the device while each op runs when every swap has left and come back at once."""
    load = step.live_bytes.copy()
    for swap in swaps:
        lighten(load, swap)
    return load


def within(step: Step, swaps: Sequence[TensorSwap], capacity: int | Ints) -> list[TensorSwap]:
    """The same swaps, each brought back no earlier than the device has free bytes for it until its use.

    ``capacity`` may differ from op to op. Those that are needed first choose first. A step in which the
    device is never fuller than ``capacity`` by this count cannot deadlock in the simulator, whatever its
    channels' speed.
    """
    load = load_under(step, [replace(swap, back=swap.gap.before) for swap in swaps])
    room = capacity - load
    found: list[TensorSwap] = []
    for swap in sorted(swaps, key=lambda swap: (swap.gap.before, swap.gap.tensor)):
        full = np.nonzero(room[swap.back : swap.gap.before] < swap.gap.bytes)[0]
        back = swap.back + int(full[-1]) + 1 if len(full) else swap.back
        room[back : swap.gap.before] -= swap.gap.bytes
        found.append(replace(swap, back=back))
    return found


def moves_of(swaps: Sequence[TensorSwap]) -> tuple[MemoryMove, ...]:
    """Each swap as moves: out, and back before its next use; a wrapping one starts the step on its tier.

    A tensor that leaves again later in the step keeps its copy, so that leaving costs nothing if it was only
    read.
    """
    last: dict[int, int] = {}
    for swap in swaps:
        last[swap.gap.tensor] = max(last.get(swap.gap.tensor, -1), swap.out)
    moves: list[MemoryMove] = []
    for swap in sorted(swaps, key=lambda swap: (swap.gap.before, swap.gap.tensor)):
        gap = swap.gap
        moves.append(Offload(swap.out, gap.tensor, swap.out - 1, swap.tier))
        moves.append(Prefetch(swap.back, gap.tensor, keep=last[gap.tensor] > gap.before))
        if gap.wraps:
            moves.append(PlaceTensor(0, gap.tensor, swap.tier))
    return tuple(sorted(moves, key=_turn))


def _turn(move: MemoryMove) -> tuple[int, int]:
    """At one op: where the step begins, then what leaves, then what comes."""
    return move.at, 0 if isinstance(move, PlaceTensor) else 1 if isinstance(move, Offload) else 2
