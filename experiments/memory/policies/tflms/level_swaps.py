"""Swaps chosen by distance in the graph instead of by time: the rewriting rules of TFLMS, and its model of
memory.

A tensor's *near* readers are those at most ``threshold`` levels from its producer. It leaves after the last
near one. The readers beyond share a swap-in as long as they lie at most ``groupby`` levels apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from experiments.memory.interface import MemoryMove, WaitForCopy
from experiments.memory.planning.graph import DataFlow, between, members
from experiments.memory.planning.swaps import Gap, TensorSwap, earliest_return, moves_of
from experiments.workloads.step import Step

#: Levels below the wished one that are searched for a trigger.
SEARCHED = 10
#: Which copies block computation: none, swap-outs, swap-ins, both.
NONE, OUTS, INS, BOTH = range(4)


@dataclass(frozen=True)
class Settings:
    """The four parameters of TFLMS."""

    threshold: int
    ahead: int = 1
    groupby: int = 0
    sync: int = NONE

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class LevelSwaps:
    """Swaps of one step for any settings, and ``play``: whether the step would fit with them."""

    def __init__(self, step: Step) -> None:
        self.step, self.flow = step, DataFlow(step)
        self.levels = len(self.flow.by_level)
        ranked = any(len(shape) > 1 for shape in step.tensors.shape)
        persistent, sizes = step.persistent.tolist(), step.tensors.bytes.tolist()
        self.uses = {
            tensor: row.tolist()
            for tensor, row in enumerate(step.uses)
            if sizes[tensor] and not persistent[tensor] and len(row) > 1
            # Scalars and vectors stay; a trace without shapes does not tell.
            if not ranked or len(step.tensors.shape[tensor]) > 1
        }
        self.sizes = sizes

    def swaps(self, settings: Settings) -> list[TensorSwap]:
        found = []
        for tensor, uses in self.uses.items():
            for group in self._groups(uses, settings):
                gap = Gap(tensor, self.sizes[tensor], group[0], group[1])
                if gap.before > gap.after + 1:
                    found.append(TensorSwap(gap, self._back(gap, uses[0], settings)))
        return found

    def _groups(self, uses: Sequence[int], settings: Settings) -> Iterator[tuple[int, int]]:
        """(use before, first reader) of every swap-in: where the near readers end, and where a group does."""
        level = self.flow.level
        far = False
        for a, b in itertools.pairwise(uses):
            if not far and level[b] - level[uses[0]] > settings.threshold:
                far = True
                yield a, b
            elif far and not (settings.groupby and abs(level[b] - level[a]) <= settings.groupby):
                yield a, b

    def _back(self, gap: Gap, producer: int, settings: Settings) -> int:
        first = min(earliest_return(gap), gap.before)
        if settings.sync & INS:
            return gap.before
        trigger = self.trigger(gap, producer, settings.ahead)
        if trigger is None:
            trigger = max((op for op in self.flow.feeders[gap.before] if op < gap.before), default=-1)
        return max(first, trigger + 1)

    def trigger(self, gap: Gap, producer: int, ahead: int) -> int | None:
        """Return an op ``ahead`` levels and one more above the reader that reaches it.

        Up to ten levels higher if need be.
        """
        level, reader = self.flow.level, gap.before
        reaching = self.flow.ancestors[reader] & between(gap.after + 1, reader)
        top = level[reader] - ahead - 1
        for wanted in range(top, max(level[producer], top - SEARCHED), -1):
            found = reaching & self.flow.by_level[wanted]
            if found:
                return next(members(found))
        return None

    def play(self, settings: Settings, room: float) -> bool:
        """Whether no op finds fewer than its bytes free of ``room`` (persistent tensors included).

        Ops run in the order of the step; a tensor that leaves asynchronously is freed one op late.
        """
        load, delay = self.step.live_bytes.copy(), 0 if settings.sync & OUTS else 1
        for swap in self.swaps(settings):
            load[swap.gap.after + 1 + delay : swap.back] -= swap.gap.bytes
        return int(load.max(initial=0)) < room


def blocking_moves(swaps: Sequence[TensorSwap], sync: int) -> tuple[MemoryMove, ...]:
    """The swaps as moves; with synchronous swap-outs each is waited for."""
    moves = moves_of(swaps)
    if sync & OUTS:
        moves += tuple(WaitForCopy(swap.gap.after + 1, swap.gap.tensor) for swap in swaps)
    order = {"offload": 0, "wait": 1}
    return tuple(sorted(moves, key=lambda move: (move.at, order.get(move.action, 2))))
