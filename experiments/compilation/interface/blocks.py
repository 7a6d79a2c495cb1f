"""Operators as blocks that any unit of a device can run, and the schedules that bind them (Rammer, OSDI 2020,
section 3).

The paper's names: an rOperator is a ``BlockOperator`` (independent blocks, its rTasks), the vDevice a
``VirtualDevice`` of ``units`` (vEUs), an rProgram's piece a ``KernelGroup``: what one launched kernel runs,
blocks bound to units beforehand. Times are seconds from the group's start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from experiments.compilation.interface.architecture import UnitShare
from experiments.compilation.interface.policy import CompilationPolicy
from experiments.core.knobs import knob

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DividedAxis:
    """Axis of a result (from the last, -1) along which an op can be computed in parts.

    ``along`` are the results read that are then divided at the same axis.
    """

    axis: int
    extent: int
    along: tuple[str, ...] = ()


@dataclass(frozen=True)
class OperatorWork:
    """Work of an op before it is divided into blocks.

    - ``flops``, ``bytes``: computed, and read and written.
    - ``elements``, ``made``: elements and bytes of its largest output.
    - ``reads``: the ops whose results it reads.
    - ``parts``, ``members``: how many ops it is made of, and which, where it is to be carried out.
    - ``axes``: along which it can be divided; ``None`` of modeled kernels, divided into any elements.
    """

    name: str
    target: str
    flops: float
    bytes: float
    elements: int
    made: float
    reads: tuple[str, ...]
    parts: int = 1
    members: tuple[str, ...] = ()
    axes: tuple[DividedAxis, ...] | None = None

    @property
    def most_blocks(self) -> int:
        """Blocks that it can be divided into at most; one where it has no axis for that."""
        if self.axes is None:
            return self.elements
        return max((axis.extent for axis in self.axes), default=1)


@dataclass(frozen=True)
class KernelGrid:
    """A grid of ``blocks`` equal blocks, each ``seconds`` long on one unit."""

    blocks: int
    seconds: float

    def alone(self, units: int) -> float:
        """Return seconds with the whole device to itself: so many waves of blocks as the units need."""
        return -(-self.blocks // units) * self.seconds

    @property
    def area(self) -> float:
        """Unit-seconds: what it costs in company."""
        return self.blocks * self.seconds


@dataclass(frozen=True)
class BlockOperator:
    """One kernel of a graph in two versions (Rammer's rOperator).

    - ``fast``: the shortest alone.
    - ``thrifty``: the one of least area.
    - ``reads``: the operators that must be done before.
    - ``members``: the ops of the graph that it computes, where it is to be carried out.
    - ``divisible``: false for an operator that is not made of blocks (a library's call): it is launched by
      itself.
    """

    name: str
    fast: KernelGrid
    thrifty: KernelGrid
    reads: tuple[str, ...] = ()
    divisible: bool = True
    members: tuple[str, ...] = ()


@dataclass(frozen=True)
class VirtualDevice:
    """Device of ``units`` that run blocks concurrently (Rammer's vDevice).

    ``sync`` seconds pass to wait for each other inside a kernel, ``launch`` seconds from one kernel to the
    next.
    """

    units: int
    sync: float = 1e-6
    launch: float = 0.0


@dataclass(frozen=True)
class BlockPlacement:
    """Where an operator's blocks run: block k on ``units[k % len(units)]``."""

    operator: str
    kernel: KernelGrid
    units: tuple[int, ...]
    start: float
    finish: float

    @property
    def counts(self) -> Ints:
        """Blocks on each of ``units``."""
        return counts_of(self.kernel.blocks, len(self.units))


@dataclass(frozen=True)
class KernelGroup:
    """Operators that one launched kernel runs.

    ``why`` says why a group of one operator was not joined with others.
    """

    placements: tuple[BlockPlacement, ...]
    why: str = ""

    @property
    def seconds(self) -> float:
        return max(placement.finish for placement in self.placements)


def counts_of(blocks: int, units: int) -> Ints:
    """Return how many of ``blocks`` each of ``units`` gets when they are dealt out in turn."""
    return blocks // units + (np.arange(units) < blocks % units)


@dataclass(frozen=True)
class BlockSchedule:
    """Whole program: its operators in execution order, and the groups launched one after another."""

    machine: VirtualDevice
    operators: tuple[BlockOperator, ...]
    groups: tuple[KernelGroup, ...]

    @property
    def seconds(self) -> float:
        return sum(self.machine.launch + group.seconds for group in self.groups)

    @property
    def serial(self) -> float:
        """The same kernels one after another, each with the device to itself."""
        return sum(self.machine.launch + entry.fast.alone(self.machine.units) for entry in self.operators)


@dataclass(frozen=True)
class SchedulingPolicy(CompilationPolicy):
    """Asked what is launched, in which order, and where every block runs."""

    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    exceptions: ClassVar[Mapping[str, str]] = {
        "closed_form": "blocks have a price of their own, worked by hand in its tests"
    }

    occupancy: int = knob(4, "blocks side by side on a multiprocessor", low=1, high=32)
    latency: float = knob(1e-6, "what a block takes however little it does", low=0.0, high=1e-3, unit="s")
    lanes: int = knob(
        0,
        "units of a measured run: threads, on a GPU streams; 0: torch's threads, four streams",
        low=0,
        high=256,
    )

    def plan(self, works: Sequence[OperatorWork], unit: UnitShare, launch: float) -> BlockSchedule:
        raise NotImplementedError


def violations(schedule: BlockSchedule) -> list[str]:
    """Return the reasons why a schedule is none of its operators, one line each."""
    placed = [entry for group in schedule.groups for entry in group.placements]
    known = {operator.name: operator for operator in schedule.operators}
    times = Counter(entry.operator for entry in placed)
    found = [f"{name} runs twice" for name, count in times.items() if count > 1]
    found += [f"{name} is no operator of the schedule" for name in times if name not in known]
    found += ["a kernel is launched that runs nothing" for group in schedule.groups if not group.placements]
    found += _order_faults(placed, schedule.operators)
    for entry in placed:
        found += _placement_faults(entry, known.get(entry.operator), schedule.machine)
    return found


def _order_faults(placed: Sequence[BlockPlacement], operators: Sequence[BlockOperator]) -> Iterator[str]:
    order = {entry.operator: number for number, entry in enumerate(placed)}
    for operator in operators:
        if operator.name not in order:
            yield f"{operator.name} never runs"
            continue
        late = [name for name in operator.reads if order.get(name, -1) > order[operator.name]]
        yield from (f"{operator.name} runs before {name}, which it reads" for name in late)


def _placement_faults(
    entry: BlockPlacement, operator: BlockOperator | None, machine: VirtualDevice
) -> Iterator[str]:
    if operator is not None and entry.kernel not in (operator.fast, operator.thrifty):
        yield f"{entry.operator} runs a kernel that it does not have"
    if len(set(entry.units)) < len(entry.units):
        yield f"{entry.operator} names a unit twice"
    elif not entry.units or min(entry.units) < 0 or max(entry.units) >= machine.units:
        yield f"{entry.operator} runs on units that are not there"


def omissions(schedule: BlockSchedule, works: Sequence[OperatorWork]) -> list[str]:
    """Return the work of a step that no operator of the schedule does, one line each.

    That is a result that no op reads, or what an operator reads.
    """
    known = {operator.name for operator in schedule.operators}
    settled = known | {name for work in works for name in work.reads}
    found = [f"{work.name} never runs" for work in works if work.name not in settled]
    wanted = dict.fromkeys(name for operator in schedule.operators for name in operator.reads)
    return found + [f"{name} is read and never runs" for name in wanted if name not in known]
