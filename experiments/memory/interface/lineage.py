"""Lineage: which ops must run again to have a tensor again, and whether they would give the same bytes.

A tensor's *version* before op ``k`` is the number of ops before ``k`` that wrote it. A rerun is right when
every op reads the versions it read the first time; then running it again gives the same content.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection

import numpy as np

from experiments.memory.interface.plan import MemoryPlan, Recompute
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Step

#: Ops whose results in training do not depend on the persistent tensors they update (running statistics), by
#: parts of their names in lower case (``aten.native_batch_norm``, ``BatchNorm2d_Forward``). A rerun updates a
#: scratch copy.
IGNORES_STATE = ("batch_norm", "batchnorm")
#: Ops that bring in something new each time, by parts of their names in lower case.
RUNS_ONCE = ("loaddata",)


class Lineage:
    """Writers and readers of a step's tensors.

    View ops write nothing: their output is their input's memory.
    """

    def __init__(self, step: Step) -> None:
        self.step = step
        self.persistent: list[bool] = step.persistent.tolist()
        self.views: list[bool] = step.ops.view.tolist()
        self.reads: list[list[int]] = step.inputs.lists()
        self.writes = [
            [] if view else row for row, view in zip(step.outputs.lists(), self.views, strict=True)
        ]
        self.writers: list[list[int]] = [[] for _ in range(len(step.tensors))]
        for op, written in enumerate(self.writes):
            for tensor in dict.fromkeys(written):
                self.writers[tensor].append(op)

    def version(self, tensor: int, op: int) -> int:
        """How often ``tensor`` was written before ``op``."""
        return bisect_left(self.writers[tensor], op)

    def ignores_state(self, op: int) -> bool:
        target = self.step.ops.target[op].lower()
        return any(part in target for part in IGNORES_STATE)

    def is_scratch(self, op: int, tensor: int) -> bool:
        """Return whether ``op`` updates a persistent ``tensor`` that it does not depend on.

        The tensor's state then does not matter to a rerun.
        """
        return self.persistent[tensor] and tensor in self.writes[op] and self.ignores_state(op)

    def repeatable(self, op: int) -> bool:
        """Return False for ops that may run only once.

        These change a persistent tensor which they depend on, or load data.
        """
        if any(part in self.step.ops.target[op].lower() for part in RUNS_ONCE):
            return False
        return self.ignores_state(op) or not self.writes_state(op)

    def writes_state(self, op: int) -> bool:
        return any(self.persistent[tensor] for tensor in self.writes[op])

    def external(self, ops: Collection[int]) -> list[int]:
        """Tensors that ``ops``, run in ascending order, read without any of them having written it before."""
        made: set[int] = set()
        found: dict[int, None] = {}
        for op in sorted(ops):
            fresh = [tensor for tensor in self.reads[op] if tensor not in made]
            found.update(dict.fromkeys(t for t in fresh if not self._starts(op, t)))
            made.update(self.writes[op])
        return list(found)

    def _starts(self, op: int, tensor: int) -> bool:
        """An op that lists a tensor of its own making as read and written, before any other wrote it."""
        return tensor in self.writes[op] and not self.version(tensor, op) and not self.persistent[tensor]

    def chain(self, wanted: Collection[int], available: Collection[int], at: int) -> tuple[int, ...] | None:
        """Return the ops (ascending) that recompute ``wanted`` before op ``at``.

        They begin with the ``available`` and the persistent tensors.

        ``None`` when some op of the chain cannot be repeated or a source has changed since.
        """
        ops: set[int] = set()
        todo, seen = list(wanted), set(wanted)
        while todo:
            tensor = todo.pop()
            makers = [op for op in self.writers[tensor] if op < at]
            if not makers or not all(self.repeatable(op) for op in makers):
                return None
            for source in self.external(set(makers) - ops):
                if source in seen or self.persistent[source] or source in available:
                    continue
                seen.add(source)
                todo.append(source)
            ops.update(makers)
        chain = tuple(sorted(ops))
        move = Recompute(at, chain, tuple(wanted))
        here = set(available) | {t for t, kept in enumerate(self.persistent) if kept}
        return None if self.faults(move, here - set(wanted)) else chain

    def faults(self, move: Recompute, here: Collection[int]) -> list[str]:
        """Return why ``move`` would not give the content of the first run.

        ``here`` are the tensors on the device.
        """
        made: dict[int, int] = {}
        found = []
        for op in move.ops:
            label = f"op {op} ({self.step.ops.name[op]})"
            if not self.repeatable(op):
                found.append(
                    f"{label} {'changes a persistent tensor' if self.writes_state(op) else 'loads data'}"
                )
            for tensor in self.reads[op]:
                if self._starts(op, tensor) or self.is_scratch(op, tensor):
                    continue
                have = made.get(tensor, self.version(tensor, move.at) if tensor in here else -1)
                if have != self.version(tensor, op):
                    found.append(
                        f"{label} reads tensor {tensor}, which is {'changed' if have >= 0 else 'absent'}"
                    )
            made.update(
                {tensor: self.version(tensor, op) + 1 for tensor in self.writes[op] if tensor not in here}
            )
        missing = [t for t in move.keep if t not in here and made.get(t) != self.version(t, move.at)]
        return found + [f"tensor {tensor} would not be restored" for tensor in missing]

    def last_need(self, plan: MemoryPlan) -> Ints:
        """Return when each tensor is needed last, reruns counted.

        That is ``2 * op + 1`` for an op, ``2 * at`` for a move, -1 for never. A tensor that the program holds
        longer than it uses it is needed until its release.
        """
        last = np.where(self.step.death >= 0, 2 * self.step.death + 1, -1)
        for move in plan.moves:
            if isinstance(move, Recompute):
                for tensor in self.external(move.ops):
                    last[tensor] = max(last[tensor], 2 * move.at)
        return last
