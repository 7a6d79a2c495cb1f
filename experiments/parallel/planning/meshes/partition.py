"""An operator on a mesh: which loop each axis divides, and the collectives that follow from it.

Sources: Shazeer et al., "Mesh-TensorFlow", 2018, section 3 (an einsum on slices, then an all-reduce over the
summed dimensions that are divided); Zheng et al., "Alpa", OSDI'22, section 4 (strategies of an operator and
their costs). The backward pass mirrors the loops: the gradient of an operand is summed over the loops that
the operand lacks. Left out: a norm's or softmax's statistics are two numbers for each row, and cost the same
again backward.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from experiments.parallel.interface import PER_PASS, PER_STEP
from experiments.parallel.planning.meshes.layouts import (
    PARTIAL,
    WHOLE,
    Layout,
    MeshCollective,
    count_parts,
    entry_of,
    moves,
)
from experiments.parallel.planning.meshes.mesh import Mesh
from experiments.parallel.planning.operators.divisions import Division, parts_of
from experiments.parallel.planning.operators.part_loss import LossOfParts, share_parts
from experiments.workloads.einsum import Operand, Operator

#: A number for each row of a statistic: the maximum or mean, and the sum.
STATISTICS = 2


class OperatorPartition(NamedTuple):
    """``loops``: for each axis the loop that it divides (``""``: none, all devices along it do the same).

    ``output``: the layout in which the result is handed on, partial sums added up. ``weights``: how the
    parameters are kept, in their order; gathered for each pass where the loops need another layout. Empty:
    kept as needed.
    """

    loops: tuple[str, ...]
    output: Layout
    weights: tuple[Layout, ...] = ()


@dataclass(frozen=True)
class OperatorTraffic:
    """Collectives of one operator (or one edge) in the forward and the backward pass.

    Gradients' are per step.
    """

    forward: tuple[MeshCollective, ...] = ()
    backward: tuple[MeshCollective, ...] = ()


def division_along(loops: Sequence[str], mesh: Mesh) -> Division:
    """The division of an operator's loops along the axes of a mesh."""
    found: dict[str, int] = {}
    for name, size in zip(loops, mesh.sizes, strict=True):
        if name:
            found[name] = found.get(name, 1) * size
    return found


def work_parts(loops: Sequence[str], mesh: Mesh) -> int:
    """In how many parts the work is cut."""
    return math.prod(division_along(loops, mesh).values())


def timed_parts(operator: Operator, loops: Sequence[str], mesh: Mesh, loss: LossOfParts) -> float:
    """How many equal parts of the work take as long as one of these, whose tiles may be small."""
    return share_parts(work_parts(loops, mesh), loss(operator, division_along(loops, mesh)))


def layout_made(operator: Operator, loops: Sequence[str]) -> Layout:
    """The layout of the result before partial sums are added up."""
    contracted = operator.contracted
    return tuple(entry_of(operator.output, name, PARTIAL if name in contracted else WHOLE) for name in loops)


def summed_layout(operator: Operator, loops: Sequence[str]) -> Layout:
    """The layout of the result with all partial sums added up on every device."""
    return tuple(max(entry, WHOLE) for entry in layout_made(operator, loops))


def layout_read(operand: Operand, loops: Sequence[str]) -> Layout:
    """The layout in which an operand is read."""
    return tuple(entry_of(operand.dims, name) for name in loops)


def layout_of_gradient(operator: Operator, operand: Operand, loops: Sequence[str]) -> Layout:
    """The layout in which the gradient of an operand comes out of the backward pass.

    What is added to a sum (a bias) has no part in the summed loops.
    """
    summed = operator.contracted
    added = not any(name in summed for name in operand.dims)
    whole = {"", *summed} if added else {""}
    return tuple(WHOLE if name in whole else entry_of(operand.dims, name, PARTIAL) for name in loops)


def operator_traffic(
    operator: Operator, partition: OperatorPartition, mesh: Mesh, tied: Collection[int] = ()
) -> OperatorTraffic:
    """What the operator itself sends: partial sums, statistics, halos, and gradients once a step.

    The gradients are those of parameters; those of ``tied`` parameters travel with another operator.
    """
    raw = layout_made(operator, partition.loops)
    back = summed_layout(operator, partition.loops)
    forward = moves(raw, partition.output, operator.output_bytes, mesh)
    backward = moves(partition.output, back, operator.output_bytes, mesh)
    beside = (*_statistics(operator, partition, mesh), *_halos(operator, partition, mesh))
    gathered = tuple(_parameter_gathers(operator, partition, mesh))
    gradients = _gradient_sums(operator, partition, mesh, tied)
    return OperatorTraffic((*gathered, *forward, *beside), (*gathered, *backward, *beside, *gradients))


def edge_traffic(
    source: OperatorPartition, operator: Operator, operand: Operand, loops: Sequence[str], mesh: Mesh
) -> OperatorTraffic:
    """What brings an operand from where it was made to the operator, and its gradient back."""
    return OperatorTraffic(
        moves(source.output, layout_read(operand, loops), operand.bytes, mesh),
        moves(layout_of_gradient(operator, operand, loops), source.output, operand.bytes, mesh),
    )


def weight_layouts(operator: Operator, partition: OperatorPartition) -> Iterator[tuple[Operand, Layout]]:
    """Each parameter and the layout in which devices keep it."""
    for number, operand in enumerate(operator.parameters):
        yield (
            operand,
            partition.weights[number] if partition.weights else layout_read(operand, partition.loops),
        )


def _parameter_gathers(
    operator: Operator, partition: OperatorPartition, mesh: Mesh
) -> Iterator[MeshCollective]:
    for operand, layout in weight_layouts(operator, partition):
        yield from moves(layout, layout_read(operand, partition.loops), operand.bytes, mesh, PER_PASS)


def _gradient_sums(
    operator: Operator, partition: OperatorPartition, mesh: Mesh, tied: Collection[int]
) -> Iterator[MeshCollective]:
    """Gradients of parameters are summed over the axes that divide loops which the parameter lacks."""
    for operand, layout in weight_layouts(operator, partition):
        if operand.parameter in tied:
            continue
        yield from moves(
            layout_of_gradient(operator, operand, partition.loops), layout, operand.bytes, mesh, PER_STEP
        )


def _statistics(operator: Operator, partition: OperatorPartition, mesh: Mesh) -> Iterator[MeshCollective]:
    for axis, name in enumerate(partition.loops):
        if name in operator.statistics:
            whole = operator.output_bytes / operator.size[name]
            others = [entry for place, entry in enumerate(partition.output) if place != axis]
            sizes = [size for place, size in enumerate(mesh.sizes) if place != axis]
            yield MeshCollective("all_reduce", axis, STATISTICS * whole / count_parts(tuple(others), sizes))


def _halos(operator: Operator, partition: OperatorPartition, mesh: Mesh) -> Iterator[MeshCollective]:
    """Both neighbors' borders, as one exchange along the axis."""
    reach = dict(operator.halo)
    data = next((operand for operand in operator.operands if operand.parameter < 0), None)
    for axis, name in enumerate(partition.loops):
        if name in reach and data is not None:
            cut = division_along(partition.loops, mesh)
            local = data.bytes / parts_of(cut, data.dims)
            lines = operator.size[name] / cut[name]
            yield MeshCollective("permute", axis, local * reach[name] / lines)


def parameter_bytes(operator: Operator, partition: OperatorPartition, mesh: Mesh) -> float:
    """Of its weights on each device."""
    return sum(
        operand.bytes / count_parts(layout, mesh.sizes)
        for operand, layout in weight_layouts(operator, partition)
    )


def stash_bytes(operator: Operator, partition: OperatorPartition, mesh: Mesh) -> float:
    """Of its results that each device keeps for the backward pass."""
    return operator.stash_bytes / count_parts(partition.output, mesh.sizes)
