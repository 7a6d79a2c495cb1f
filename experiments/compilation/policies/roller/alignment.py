"""Which sizes a tile may have (Roller's rTile).

Aligned with the memory's transactions, not padding the tensor too much.

Roller, section 3.1: sizes that fall between transactions, or that leave most of the last tile empty, waste
what the hardware moves anyway; only sizes without such waste are looked at, so that few are left.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable

from experiments.compilation.interface.architecture import Architecture
from experiments.compilation.interface.expressions import Expression, Sizes

#: A thread's tile doubles along each axis; a block's grows by multiples of the thread's.
REGISTER_FACTORS = (1, 2, 4, 8, 16, 32)
SHARED_MULTIPLES = 32
#: A reduction step begins at a transaction, grows fourfold, and ends here.
STEP_GROWTH, LONGEST_STEP = 4, 32


def padded(extent: int, size: int) -> int:
    """Return what an axis grows to when it is cut into tiles of ``size``."""
    return -(-extent // size) * size


def allowed_sizes(extent: int, sizes: Iterable[int], slack: float) -> list[int]:
    """Return the sizes that pad ``extent`` by at most the share ``slack``."""
    return [size for size in sizes if padded(extent, size) <= extent * (1 + slack)]


def register_steps(expression: Expression, slack: float) -> list[list[int]]:
    """Return sizes of a thread's tile along every spatial axis, ascending."""
    return [allowed_sizes(extent, REGISTER_FACTORS, slack) for extent in expression.domain]


def transaction(expression: Expression, architecture: Architecture) -> int:
    """Return elements of the smallest transaction with DRAM."""
    return max(1, architecture.units.write_transaction_bytes // expression.output.element_bytes)


def shared_steps(
    expression: Expression, register: Sizes, architecture: Architecture, slack: float
) -> list[list[int]]:
    """Return sizes of a block's tile along every spatial axis.

    Multiples of the thread's, the last axis in transactions.

    An axis shorter than a transaction is taken whole.
    """
    base = list(register)
    if base:
        whole = math.lcm(base[-1], transaction(expression, architecture))
        base[-1] = whole if whole <= expression.domain[-1] else min(expression.domain[-1], whole)
    return [_multiples(extent, size, slack) for extent, size in zip(expression.domain, base, strict=True)]


@functools.lru_cache(maxsize=4096)
def _multiples(extent: int, base: int, slack: float) -> list[int]:
    return allowed_sizes(extent, (base * times for times in range(1, SHARED_MULTIPLES + 1)), slack)


def reduction_steps(expression: Expression, architecture: Architecture) -> list[list[int]]:
    """Steps along every reduced axis: a transaction, fourfold, up to 32 or the axis.

    A row-wise expression needs its rows twice: they may also be taken whole where shared memory holds two.
    """
    row = math.prod(expression.reduction) * sum(access.element_bytes for access in expression.inputs)
    whole = expression.rowwise and row <= architecture.units.shared_bytes_per_block // 2
    first = transaction(expression, architecture)
    return [sorted({*_steps(extent, first), *([extent] * whole)}) for extent in expression.reduction]


def _steps(extent: int, first: int) -> list[int]:
    last = min(extent, LONGEST_STEP)
    steps = [min(first, last)]
    while steps[-1] < last:
        steps.append(min(steps[-1] * STEP_GROWTH, last))
    return steps
