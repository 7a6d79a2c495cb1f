"""Which orders of a step's ops compute the same, and ways to make one from others."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from experiments.memory.interface import Lineage
from experiments.workloads.step import Step


class Precedence:
    """``after[i]`` are ops that may run only when op ``i`` has; ``waits[i]`` how many it waits for itself.

    Reads follow the last write, writes follow every use before them, a view is made before its memory is used
    again, and random ops draw in turn.
    """

    def __init__(self, step: Step) -> None:
        writes, views = Lineage(step).writes, step.ops.view.tolist()
        before: list[set[int]] = [set() for _ in range(len(step.ops))]
        for tensor, row in enumerate(step.uses):
            barrier, reads = -1, list[int]()
            for op in row.tolist():
                before[op].add(barrier)
                if tensor in writes[op] or views[op]:
                    before[op].update(reads)
                    barrier, reads = op, []
                else:
                    reads.append(op)
        draws = np.nonzero(step.ops.random)[0].tolist()
        for first, second in itertools.pairwise(draws):
            before[second].add(first)
        self.after: list[list[int]] = [[] for _ in before]
        for op, earlier in enumerate(before):
            earlier.discard(-1)
            for first in sorted(earlier):
                self.after[first].append(op)
        self.waits = [len(earlier) for earlier in before]

    def allows(self, order: Sequence[int]) -> bool:
        """Whether every op comes after those that it waits for."""
        position = {op: at for at, op in enumerate(order)}
        return len(position) == len(self.waits) and all(
            position[op] < position[later] for op, row in enumerate(self.after) for later in row
        )

    def cross(self, first: Sequence[int], second: Sequence[int], cut: int) -> tuple[int, ...]:
        """Return the first ``cut`` ops of ``first``, then the others in the order of ``second``."""
        head = first[:cut]
        taken = set(head)
        return (*head, *(op for op in second if op not in taken))

    def mutate(self, order: Sequence[int], chance: float, random: np.random.Generator) -> tuple[int, ...]:
        """Return op by op the next ready one of ``order`` or, with ``chance``, any ready one."""
        return tuple(self._draw_ops(order, chance, random))

    def _draw_ops(self, order: Sequence[int], chance: float, random: np.random.Generator) -> Iterator[int]:
        waits, count = list(self.waits), len(order)
        position = [0] * count
        for at, op in enumerate(order):
            position[op] = at
        ready = [position[op] for op in range(count) if not waits[op]]
        heapq.heapify(ready)
        draws = np.nonzero(random.random(count) < chance)[0].tolist()
        strays = dict(zip(draws, random.random(len(draws)).tolist(), strict=True))
        for at in range(count):
            if at in strays:
                index = int(strays[at] * len(ready))
                ready[index], ready[-1] = ready[-1], ready[index]
                op = order[ready.pop()]
                _settle(ready, index)
            else:
                op = order[heapq.heappop(ready)]
            yield op
            for later in self.after[op]:
                waits[later] -= 1
                if not waits[later]:
                    heapq.heappush(ready, position[later])


def _settle(heap: list[int], index: int) -> None:
    """Make ``heap`` one again after its entry at ``index`` was changed (``heapify`` looks at all of them)."""
    if index >= len(heap):
        return
    value = heap[index]
    while index and value < heap[(index - 1) // 2]:
        heap[index], index = heap[(index - 1) // 2], (index - 1) // 2
    while (child := 2 * index + 1) < len(heap):
        child += child + 1 < len(heap) and heap[child + 1] < heap[child]
        if value <= heap[child]:
            break
        heap[index], index = heap[child], child
    heap[index] = value
