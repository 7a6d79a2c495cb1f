"""Rammer (Ma et al., OSDI 2020).

Operators are grids of blocks that are bound to units of the device when compiling.

A graph of rOperators (kernels whose blocks, rTasks, are independent) becomes a few rPrograms: each one
launched kernel in which every unit (vEU) has its list of blocks. Waves of independent operators fill the
device that none of them fills alone, and synchronization inside a kernel replaces launches. Element-wise ops
are fused into what makes their input first, as the paper's compiler does before it schedules.

What the paper and its release leave open, and what is taken here: the kernels are modeled
(``planning.blocks``), not measured; a block goes to the unit that is free first, and waits for what its
kernel reads, not for all units; a wait costs ``sync`` seconds. ``schedule`` also gives the baselines by the
same kernels: ``kernels`` launches every op by itself, as a framework does, ``fused`` one fused kernel after
another, as compilers before it do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from experiments.compilation.interface.architecture import UnitShare
from experiments.compilation.interface.blocks import (
    BlockSchedule,
    OperatorWork,
    SchedulingPolicy,
    VirtualDevice,
)
from experiments.compilation.planning.blocks import operator_of
from experiments.compilation.policies.rammer.fusion import fuse
from experiments.compilation.policies.rammer.grouping import SHORTER, THRESHOLD, Grouping
from experiments.compilation.policies.rammer.layout import alone, waves
from experiments.core.knobs import knob

KERNELS, FUSED, RTASKS = "kernels", "fused", "rtasks"


@dataclass(frozen=True)
class Rammer(SchedulingPolicy):
    """Binds the blocks of independent operators to the device's units, in few kernels."""

    name: ClassVar[str] = "rammer"
    mechanism: ClassVar[str] = "make kernels"

    schedule: str = knob(
        RTASKS,
        "blocks bound to units; or one kernel for each op or fused op",
        choices=(RTASKS, FUSED, KERNELS),
    )
    choice: str = knob(
        SHORTER,
        "kernels of a group by the shorter of two plans or by the artifact's threshold on blocks",
        choices=(SHORTER, THRESHOLD),
    )
    merge: bool = knob(True, "join consecutive groups where that is shorter")
    sync: float = knob(1e-6, "a wait for other units inside a kernel", low=0.0, high=1e-3, unit="s")

    def plan(self, works: Sequence[OperatorWork], unit: UnitShare, launch: float) -> BlockSchedule:
        """Return what is launched, in order, and where each block runs."""
        kernels = works if self.schedule == KERNELS else fuse(works)
        operators = tuple(operator_of(work, unit) for work in kernels)
        machine = VirtualDevice(unit.count, max(self.sync, unit.wait), launch)
        if self.schedule == RTASKS:
            groups = Grouping(machine, self.choice, self.merge).groups(operators)
        else:
            groups = [alone(operator, machine) for wave in waves(operators) for operator in wave]
        return BlockSchedule(machine, operators, tuple(groups))
