"""What a simulation needs of a step and a machine, as plain lists, prepared once for any number of plans."""

from __future__ import annotations

import numpy as np

from experiments.core.errors import BadInput
from experiments.memory.interface.machine import Machine
from experiments.memory.interface.rerun import Lineage
from experiments.workloads.step import Step


class Prepared:
    """Columns of ``step`` as lists: a loop in Python reads these several times faster than numpy rows."""

    def __init__(self, step: Step, machine: Machine) -> None:
        if np.isnan(step.ops.seconds).any():
            raise BadInput("the step has no op times", step.name, "a timed step")
        self.step, self.machine = step, machine
        self.seconds: list[float] = step.ops.seconds.tolist()
        self.workspace: list[int] = step.ops.workspace.tolist()
        self.sizes: list[int] = step.tensors.bytes.tolist()
        self.kinds: list[int] = step.tensors.kind.tolist()
        self.touched: list[list[int]] = [row.tolist() for row in step.touched]
        self.persistent: list[int] = np.nonzero(step.persistent)[0].tolist()
        self.flops: list[float] = step.ops.flops.tolist()
        self.lineage = Lineage(step)
