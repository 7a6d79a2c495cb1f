"""A program of two levels of tiles (Roller's rProgram).

A thread's share in registers, a block's in shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.compilation.interface.architecture import Architecture
from experiments.compilation.interface.expressions import Expression, Sizes, TensorAccess
from experiments.hardware.parts import ComputeUnits

REGISTER_BYTES = 4


@dataclass(frozen=True)
class TileProgram:
    """The sizes of a thread's tile and of a block's, and the step along each reduced axis.

    The step is how far the block goes at once.
    """

    register: Sizes
    shared: Sizes
    step: Sizes

    @property
    def threads(self) -> int:
        return tiles(self.shared, self.register)


def tiles(extents: Sequence[int], tile: Sequence[int]) -> int:
    """Return how many tiles cover the extents."""
    return math.prod(-(-extent // size) for extent, size in zip(extents, tile, strict=True))


def grid(expression: Expression, program: TileProgram) -> int:
    """Return blocks of the whole operator."""
    return tiles(expression.domain, program.shared)


def staged_inputs(expression: Expression) -> tuple[TensorAccess, ...]:
    """Return inputs that go through shared memory.

    All of a reduction; what is used once goes straight to registers.
    """
    return expression.inputs if expression.reduced else ()


def conflicts(stride: int, rows: int, units: ComputeUnits) -> int:
    """Return how often a warp's access is repeated because its words share banks.

    It is to ``rows`` words that lie ``stride`` words apart.
    """
    lanes = units.banks // math.gcd(stride, units.banks)
    return -(-min(rows, units.warp) // lanes)


def row_padding(expression: Expression, access: TensorAccess, sizes: Sizes, units: ComputeUnits) -> int:
    """Return elements added to each row of a staged tile against bank conflicts (0 or 1).

    With them threads on different rows meet different banks.

    Threads stand on rows where the contiguous dimension is reduced over: all of a warp then read one column.
    """
    if not any(access is column for column in expression.column_reads):
        return 0
    row = expression.extents_touched(access, sizes)[-1]
    words = max(1, row * access.element_bytes // units.bank_bytes)
    rows = expression.elements(access, sizes) // row
    return int(conflicts(words, rows, units) > 1)


def shared_bytes(expression: Expression, program: TileProgram, units: ComputeUnits) -> int:
    """Shared memory of a block.

    Its staged inputs over one reduction step, rows padded against bank conflicts.
    """
    sizes = (*program.shared, *program.step)
    total = 0
    for access in staged_inputs(expression):
        elements = expression.elements(access, sizes)
        if row_padding(expression, access, sizes, units):
            elements += elements // expression.extents_touched(access, sizes)[-1]
        total += elements * access.element_bytes
    return total


def registers(expression: Expression, register: Sizes) -> int:
    """Registers of a thread: its operands of one reduction point and its results."""
    sizes = (*register, *(1,) * len(expression.reduced))
    held = sum(expression.elements(access, sizes) * access.element_bytes for access in expression.inputs)
    results = math.prod(register) * max(expression.output.element_bytes, REGISTER_BYTES)
    return -(-(held + results) // REGISTER_BYTES)


def resident(expression: Expression, program: TileProgram, architecture: Architecture) -> int:
    """Return blocks that a unit holds at once: by shared memory, threads, registers and its own limit."""
    units, held = architecture.units, shared_bytes(expression, program, architecture.units)
    by_shared = units.shared_bytes // held if held else units.blocks
    by_registers = units.registers // max(1, registers(expression, program.register) * program.threads)
    return max(1, min(by_shared, units.threads // program.threads, by_registers, units.blocks))


def fits(expression: Expression, program: TileProgram, architecture: Architecture) -> bool:
    """Return whether a block keeps to the caps of threads, registers and shared memory."""
    units, threads = architecture.units, program.threads
    return (
        threads <= units.threads_per_block
        and registers(expression, program.register) * threads <= units.registers_per_block
        and shared_bytes(expression, program, units) <= units.shared_bytes_per_block
    )


def is_aligned(program: TileProgram, units: ComputeUnits) -> bool:
    """Return whether a block's threads fill whole warps on every scheduler of a unit."""
    return program.threads % (units.warp * units.partitions) == 0
