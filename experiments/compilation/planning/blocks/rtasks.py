"""Operators as blocks that any unit of a device can run, and a list schedule of them (Rammer, OSDI 2020, section 3).

The paper's names: an rOperator is an ``Operator`` (independent blocks, its rTasks), the vDevice a ``Machine`` of
``units`` (vEUs), an rProgram's piece a ``Group``: what one launched kernel runs, blocks bound to units beforehand.
Times are seconds from the group's start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

#: Most operators of one group (NNFusion's limit on the code of one kernel).
LARGEST_GROUP = 128

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Kernel:
    """A grid of ``blocks`` equal blocks, each ``seconds`` long on one unit."""

    blocks: int
    seconds: float

    def alone(self, units: int) -> float:
        """Seconds with the whole device to itself: so many waves of blocks as the units need."""
        return -(-self.blocks // units) * self.seconds

    @property
    def area(self) -> float:
        """Unit-seconds: what it costs in company."""
        return self.blocks * self.seconds


@dataclass(frozen=True)
class Operator:
    """One kernel of a graph: ``fast`` is the shortest alone, ``thrifty`` the one of least area.

    ``reads`` are the operators that must be done before. ``divisible`` is false for an operator that is not made of
    blocks (a library's call): it is launched by itself.
    """

    name: str
    fast: Kernel
    thrifty: Kernel
    reads: tuple[str, ...] = ()
    divisible: bool = True


@dataclass(frozen=True)
class Machine:
    """``units`` that run blocks side by side; ``sync`` seconds to wait for each other inside a kernel, ``launch``
    seconds from one kernel to the next."""

    units: int
    sync: float = 1e-6
    launch: float = 0.0


@dataclass(frozen=True)
class Placement:
    """Where an operator's blocks run: block k on ``units[k % len(units)]``."""

    operator: str
    kernel: Kernel
    units: tuple[int, ...]
    start: float
    finish: float

    @property
    def counts(self) -> Ints:
        """Blocks on each of ``units``."""
        return counts_of(self.kernel.blocks, len(self.units))


@dataclass(frozen=True)
class Group:
    """What one launched kernel runs. ``why`` says why a group of one operator was not put in company."""

    placements: tuple[Placement, ...]
    why: str = ""

    @property
    def seconds(self) -> float:
        return max(placement.finish for placement in self.placements)


def waves(operators: Sequence[Operator]) -> list[list[Operator]]:
    """Operators by breadth-first level: none reads one of its own level or a later one. Given in execution order."""
    level: dict[str, int] = {}
    found: list[list[Operator]] = []
    for operator in operators:
        depth = 1 + max((level[name] for name in operator.reads if name in level), default=-1)
        level[operator.name] = depth
        if depth == len(found):
            found.append([])
        found[depth].append(operator)
    return found


def counts_of(blocks: int, units: int) -> Ints:
    """How many of ``blocks`` dealt out in turn each of ``units`` gets."""
    return blocks // units + (np.arange(units) < blocks % units)


class Lanes:
    """The units of a machine while a group is laid out on them."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.ready: Floats = np.zeros(machine.units)
        self.finished: dict[str, float] = {}

    def place(self, operator: Operator, kernel: Kernel) -> Placement:
        """Deal the blocks to the units that are free first; what the group has made is waited for, and a sync."""
        count = min(kernel.blocks, self.machine.units)
        chosen = np.argsort(self.ready, kind="stable")[:count]
        made = [self.finished[name] for name in operator.reads if name in self.finished]
        barrier = max(made) + self.machine.sync if made else 0.0
        start = np.maximum(self.ready[chosen], barrier)
        self.ready[chosen] = start + counts_of(kernel.blocks, count) * kernel.seconds
        finish = float(self.ready[chosen].max())
        self.finished[operator.name] = finish
        return Placement(operator.name, kernel, tuple(chosen.tolist()), float(start.min()), finish)


def laid_out(operators: Sequence[Operator], kernels: Mapping[str, Kernel], machine: Machine) -> Group:
    """One group of ``operators``, in order, each with its chosen kernel."""
    lanes = Lanes(machine)
    return Group(tuple(lanes.place(operator, kernels[operator.name]) for operator in operators))


def alone(operator: Operator, machine: Machine, why: str = "") -> Group:
    """The operator as a kernel of its own, the fast one."""
    kernel = operator.fast
    units = tuple(range(min(kernel.blocks, machine.units)))
    return Group((Placement(operator.name, kernel, units, 0.0, kernel.alone(machine.units)),), why)


@dataclass(frozen=True)
class Schedule:
    """A whole program: its operators in execution order, and what is launched one after another."""

    machine: Machine
    operators: tuple[Operator, ...]
    groups: tuple[Group, ...]

    @property
    def seconds(self) -> float:
        return sum(self.machine.launch + group.seconds for group in self.groups)

    @property
    def serial(self) -> float:
        """The same kernels one after another, each with the device to itself."""
        return sum(self.machine.launch + entry.fast.alone(self.machine.units) for entry in self.operators)
