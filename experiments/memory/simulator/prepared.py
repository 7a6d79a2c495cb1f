"""What a simulation needs of a step and a machine, as plain lists, prepared once for any number of plans."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import numpy as np

from experiments.core.errors import BadInput
from experiments.memory.interface.lineage import Lineage
from experiments.memory.interface.machine import MemoryMachine
from experiments.memory.interface.plan import MemoryPlan, Recompute
from experiments.workloads.step import Step


class Prepared:
    """Columns of ``step`` as lists: a loop in Python reads these several times faster than numpy rows."""

    def __init__(self, step: Step, machine: MemoryMachine) -> None:
        if np.isnan(step.ops.seconds).any():
            raise BadInput("the step has no op times", step.name, "a timed step")
        self.step, self.machine = step, machine
        self.seconds: list[float] = step.ops.seconds.tolist()
        self.workspace: list[int] = step.ops.workspace.tolist()
        self.sizes: list[int] = step.tensors.bytes.tolist()
        self.kinds: list[int] = step.tensors.kind.tolist()
        self.touched: list[list[int]] = step.touched.lists()
        self.persistent: list[int] = np.nonzero(step.persistent)[0].tolist()
        self.flops: list[float] = step.ops.flops.tolist()
        self.lineage = Lineage(step)
        self._deaths = self._by_last_need(MemoryPlan())

    def on(self, machine: MemoryMachine) -> Prepared:
        """Return the same for another machine."""
        other = copy.copy(self)
        other.machine = machine
        return other

    def deaths(self, plan: MemoryPlan) -> Mapping[int, Sequence[int]]:
        """Tensors needed no more: after op ``i`` at ``2 i + 1``, after the moves at ``i`` at ``2 i``."""
        rerun = any(isinstance(move, Recompute) for move in plan.moves)
        return self._by_last_need(plan) if rerun else self._deaths

    def _by_last_need(self, plan: MemoryPlan) -> dict[int, list[int]]:
        last = self.lineage.last_need(plan)
        last[self.persistent] = -1
        dying: dict[int, list[int]] = {}
        for tensor, when in enumerate(last.tolist()):
            if when >= 0:
                dying.setdefault(when, []).append(tensor)
        return dying
