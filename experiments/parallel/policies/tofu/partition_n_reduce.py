"""Partition-n-reduce: what it takes to run an operator on k workers, each with a part of one of its loops.

Source: Wang, Huang and Li, "Supporting Very Large Models using Automatic Dataflow Graph Partitioning" (Tofu),
EuroSys'19, sections 3 and 4. An operator's description (``workloads.einsum.Operator``: loops, which tensor
each of them walks, halos, what is summed over, what is opaque) says by interval arithmetic which region of a
tensor a part of a loop needs: a part of an axis that the loop walks, with its halo, or all. A loop of the
output gives pieces to put together (case 1), a loop that is summed over gives whole results to reduce (case
2). Backward operators walk the same loops with another tensor as result.

Tensors are divided along one axis into k equal pieces, each on a worker; one that no axis divides is on every
worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from experiments.parallel.planning.meshes.layouts import PARTIAL, WHOLE, entry_of, moved_bytes
from experiments.parallel.planning.operators.divisions import BATCH, divided_loops
from experiments.workloads.einsum import Operand, Operator

#: A tensor's axis, or ``WHOLE`` where every worker has all of it: a mesh's layout of one axis.
Layout = int


@dataclass(frozen=True)
class OperandAccess:
    """A tensor as one operator walks it: the loop of each axis (``""``: needed whole) and its bytes."""

    dims: tuple[str, ...]
    bytes: float


@dataclass(frozen=True)
class OperatorKernel:
    """One operator of the training graph, forward or backward.

    ``reads`` and ``writes`` are numbers of ``accesses``.

    ``loops`` are those that workers may divide, with their sizes (0: not counted); ``halo`` as in
    ``Operator``.
    """

    accesses: tuple[OperandAccess, ...]
    reads: tuple[int, ...]
    writes: int
    loops: Mapping[str, int]
    halo: Mapping[str, int]
    backward: bool


@dataclass(frozen=True)
class MovedBytes:
    """Bytes over all workers: fetched before the kernel runs, and sent to reduce or lay out its result."""

    fetched: float
    sent: float

    @property
    def total(self) -> float:
        return self.fetched + self.sent


def kernels(operator: Operator, counted: bool = True) -> Iterator[OperatorKernel]:
    """Yield the forward operator, then one for the gradient of each tensor that it reads.

    Tensors without a gradient have none.

    Access 0 is the output (backward: its gradient), the others are the operands in order.
    """
    accesses = (
        OperandAccess(operator.output, operator.output_bytes),
        *(OperandAccess(operand.dims, operand.bytes) for operand in operator.operands),
    )
    loops = {name: operator.size[name] for name in divided_loops(operator, counted)}
    if not counted and BATCH in loops:
        loops[BATCH] = 0
    halo = dict(operator.halo)
    reads = tuple(range(1, len(accesses)))
    yield OperatorKernel(accesses, reads, 0, loops, halo, backward=False)
    for number, operand in enumerate(operator.operands, 1):
        if has_gradient(operand):
            joined = operator.kind == "concatenation"  # its gradient is cut apart, whatever was joined
            others = () if joined else tuple(other for other in reads if other != number)
            yield OperatorKernel(accesses, (0, *others), number, loops, halo, backward=True)


def has_gradient(operand: Operand) -> bool:
    return operand.source >= 0 or operand.parameter >= 0


def bytes_when_divided(
    kernel: OperatorKernel, loop: str, layouts: tuple[Layout | None, ...], workers: int
) -> MovedBytes:
    """Return the bytes that move when ``loop`` is divided.

    ``layouts`` of every access, ``None`` for what may lie as the kernel likes.
    """
    fetched = sum(_fetched_bytes(kernel, number, loop, layouts[number], workers) for number in kernel.reads)
    return MovedBytes(fetched, _sent_bytes(kernel, loop, layouts[kernel.writes], workers))


def _fetched_bytes(
    kernel: OperatorKernel, number: int, loop: str, layout: Layout | None, workers: int
) -> float:
    """What of the region that each worker needs is not its own, over all workers."""
    access = kernel.accesses[number]
    if layout is None or layout == WHOLE:
        return 0.0
    wanted = entry_of(access.dims, loop)
    if wanted != layout:
        return moved_bytes(layout, wanted, access.bytes, workers)
    reach = kernel.halo.get(loop, 0) / max(kernel.loops[loop], 1)
    return access.bytes * min(1.0, reach) * (workers - 1)


def _sent_bytes(kernel: OperatorKernel, loop: str, layout: Layout | None, workers: int) -> float:
    """What of a result that a worker makes belongs to others, over all workers. A copied result goes to
    everybody.
    """
    access = kernel.accesses[kernel.writes]
    made = entry_of(access.dims, loop, PARTIAL)
    wanted = max(made, 0) if layout is None else layout
    return moved_bytes(made, wanted, access.bytes, workers)


def bytes_when_whole(kernel: OperatorKernel, layouts: tuple[Layout | None, ...], workers: int) -> MovedBytes:
    """Return the bytes that move when nothing is divided.

    Every worker fetches all and runs the whole kernel.
    """
    read = [(layouts[number], kernel.accesses[number].bytes) for number in kernel.reads]
    fetched = sum(
        moved_bytes(layout, WHOLE, size, workers) for layout, size in read if layout not in (None, WHOLE)
    )
    return MovedBytes(fetched, 0.0)


def equal_loops(kernel: OperatorKernel, workers: int) -> list[str]:
    """Return the loops whose parts are equal."""
    return [name for name, size in kernel.loops.items() if size % workers == 0]


def best_loop(kernel: OperatorKernel, layouts: tuple[Layout | None, ...], workers: int) -> tuple[float, str]:
    """Return the fewest bytes and the loop to divide (the first of equals).

    ``""`` where no loop has equal parts.
    """
    found = [
        (bytes_when_divided(kernel, loop, layouts, workers).total, loop)
        for loop in equal_loops(kernel, workers)
    ]
    if not found:
        return bytes_when_whole(kernel, layouts, workers).total, ""
    return min(found, key=lambda entry: entry[0])
