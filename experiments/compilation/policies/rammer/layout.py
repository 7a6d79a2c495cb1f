"""A list schedule of operators' blocks on a machine's units.

Waves of independent operators, laid out in order.

Rammer, OSDI 2020, section 3: what a group takes in company, and what an operator takes by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from experiments.compilation.interface.blocks import (
    BlockOperator,
    BlockPlacement,
    KernelGrid,
    KernelGroup,
    VirtualDevice,
    counts_of,
)

#: Most operators of one group (NNFusion's limit on the code of one kernel).
LARGEST_GROUP = 128

Floats = npt.NDArray[np.float64]


def waves(operators: Sequence[BlockOperator]) -> list[list[BlockOperator]]:
    """Return operators by breadth-first level: none reads one of its own level or a later one.

    Given in execution order.
    """
    level: dict[str, int] = {}
    found: list[list[BlockOperator]] = []
    for operator in operators:
        depth = 1 + max((level[name] for name in operator.reads if name in level), default=-1)
        level[operator.name] = depth
        if depth == len(found):
            found.append([])
        found[depth].append(operator)
    return found


class UnitLanes:
    """The units of a machine while a group is laid out on them."""

    def __init__(self, machine: VirtualDevice) -> None:
        self.machine = machine
        self.ready: Floats = np.zeros(machine.units)
        self.finished: dict[str, float] = {}

    def place(self, operator: BlockOperator, kernel: KernelGrid) -> BlockPlacement:
        """Deal the blocks to the units that are free first.

        What the group has made is waited for, and a sync.
        """
        count = min(kernel.blocks, self.machine.units)
        chosen = np.argsort(self.ready, kind="stable")[:count]
        made = [self.finished[name] for name in operator.reads if name in self.finished]
        barrier = max(made) + self.machine.sync if made else 0.0
        start = np.maximum(self.ready[chosen], barrier)
        self.ready[chosen] = start + counts_of(kernel.blocks, count) * kernel.seconds
        finish = float(self.ready[chosen].max())
        self.finished[operator.name] = finish
        return BlockPlacement(operator.name, kernel, tuple(chosen.tolist()), float(start.min()), finish)


def laid_out(
    operators: Sequence[BlockOperator], kernels: Mapping[str, KernelGrid], machine: VirtualDevice
) -> KernelGroup:
    """One group of ``operators``, in order, each with its chosen kernel."""
    lanes = UnitLanes(machine)
    return KernelGroup(tuple(lanes.place(operator, kernels[operator.name]) for operator in operators))


def alone(operator: BlockOperator, machine: VirtualDevice, why: str = "") -> KernelGroup:
    """Return the operator as a kernel of its own, the fast one."""
    kernel = operator.fast
    units = tuple(range(min(kernel.blocks, machine.units)))
    return KernelGroup((BlockPlacement(operator.name, kernel, units, 0.0, kernel.alone(machine.units)),), why)
