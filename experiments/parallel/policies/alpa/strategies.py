"""The ways to divide each operator of a stage over a mesh, and what they cost alone and next to their
neighbors.

Source: Zheng et al., "Alpa", OSDI'22, section 4. A heavy operator chooses; a light one follows the operand
that was made last, so that it has the choice of its leader. Equal layers are divided alike: operators at the
same place of layers with equal operators share one choice, which keeps the program as large as one block
whatever the depth of the model.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from experiments.parallel.interface import PER_STEP
from experiments.parallel.planning.meshes import partition as part
from experiments.parallel.planning.meshes.layouts import (
    PARTIAL,
    WHOLE,
    Layout,
    MeshCollective,
    loop_at,
    seconds,
)
from experiments.parallel.planning.meshes.mesh import Mesh
from experiments.parallel.planning.meshes.partition import OperatorPartition
from experiments.parallel.planning.operators.divisions import Division, is_even
from experiments.parallel.planning.operators.part_loss import LossOfParts
from experiments.workloads.einsum import Operand, Operator
from experiments.workloads.step import Floats

#: Seconds added to a collective, so that of equal plans the one with fewer and simpler messages wins: as
#: released, the ratios of its constants.
TIE = {
    "all_gather": 1e-10,
    "all_reduce": 1e-11,
    "reduce_scatter": 1e-12,
    "all_to_all": 1e-12,
    "permute": 1e-12,
}
#: Light kinds that choose for themselves: rows change their order there.
CHOOSING = ("dispatch", "combination")
Table = tuple[OperatorPartition, ...]


def leads(operator: Operator) -> bool:
    return not operator.light or operator.kind in CHOOSING


def strategies(operator: Operator, mesh: Mesh, limits: dict[str, int], scatter: bool = True) -> Table:
    """Return every legal division of an operator: a loop or none for each axis.

    Partial sums are added up everywhere or (``scatter``) along a dimension.

    ``limits``: sizes that the operands' makers have for loops, where parts must be whole too.
    """
    names = ("", *operator.divisible)
    found: list[OperatorPartition] = []
    for loops in itertools.product(*(names if size > 1 else ("",) for size in mesh.sizes)):
        cut = part.division_along(loops, mesh)
        if is_even(operator, cut) and all(limits.get(n, p) % p == 0 for n, p in cut.items()):
            raw = part.layout_made(operator, loops)
            outputs = _outputs(operator, raw, cut, mesh) if scatter else [part.summed_layout(operator, loops)]
            found += [OperatorPartition(loops, output) for output in outputs]
    return tuple(found)


def _outputs(operator: Operator, raw: Layout, cut: Division, mesh: Mesh) -> Iterator[Layout]:
    """All-reduced, or scattered along a dimension of the result that divides so."""
    choices = []
    for axis, entry in enumerate(raw):
        if entry != PARTIAL:
            choices.append([entry])
            continue
        parts = mesh.sizes[axis]
        scattered = [
            place
            for place, name in enumerate(operator.output)
            if name in operator.divisible and operator.size[name] % (parts * cut.get(name, 1)) == 0
        ]
        choices.append([WHOLE, *scattered])
    yield from itertools.product(*choices)


def following(operator: Operator, operand: Operand, leader: Table, mesh: Mesh) -> Table:
    """Return the partitions of a light operator, one for each of the operand's maker."""
    return tuple(_follow(operator, operand, partition.output, mesh) for partition in leader)


def _follow(operator: Operator, operand: Operand, layout: Layout, mesh: Mesh) -> OperatorPartition:
    loops = [loop_at(operand.dims, entry) for entry in layout]
    cut = part.division_along(loops, mesh)
    loops = [
        name if name and name in operator.divisible and operator.size[name] % cut[name] == 0 else ""
        for name in loops
    ]
    return OperatorPartition(tuple(loops), part.summed_layout(operator, loops))


@dataclass(frozen=True)
class Costs:
    """Seconds and bytes of each choice.

    Seconds for a micro-batch, seconds of gradients once a step, bytes of weights and kept results.
    """

    each: Floats
    once: Floats
    weights: Floats
    stash: Floats

    def add(self, other: Costs) -> None:
        """Add to these columns in place."""
        for own, more in (
            (self.each, other.each),
            (self.once, other.once),
            (self.weights, other.weights),
            (self.stash, other.stash),
        ):
            own += more


class Read(NamedTuple):
    """An operand that another operator makes.

    ``plain``: without the maker's number, since equal operators read equal tensors of different numbers;
    ``number``: of equal plain ones. ``alike``: equal for tensors that readers of one size read alike.
    """

    source: int
    plain: Operand
    number: int
    alike: int


class Ways:
    """The ways to divide operators on one mesh, whatever stage they are in.

    They are computed once.

    ``key`` stands for an operator: equal ones have equal keys. Tables are distinguished by identity.
    """

    def __init__(self, mesh: Mesh, loss: LossOfParts, scatter: bool = True) -> None:
        self.mesh, self._loss, self._scatter = mesh, loss, scatter
        self._tables: dict[object, Table] = {}
        self._costs: dict[object, Costs] = {}
        self._resharding: dict[object, Floats] = {}
        self._held: dict[int, frozenset[int]] = {}
        self._reads: dict[int, tuple[Read, ...]] = {}
        self._numbers: dict[object, int] = {}

    def own(self, key: object, operator: Operator, limits: dict[str, int]) -> Table:
        """Return the ways of an operator that chooses."""
        name = key, tuple(sorted(limits.items()))
        if name not in self._tables:
            self._tables[name] = strategies(operator, self.mesh, limits, self._scatter)
        return self._tables[name]

    def following(self, key: object, operator: Operator, operand: Operand, leader: Table) -> Table:
        """Return the ways of a light operator, from those of the operand's maker."""
        name = key, operand.dims, id(leader)
        if name not in self._tables:
            self._tables[name] = following(operator, operand, leader, self.mesh)
        return self._tables[name]

    def costs(self, key: object, operator: Operator, table: Table, computing: float) -> Costs:
        """Return the costs of an operator's ways.

        ``computing`` are its seconds for a micro-batch on one device, forward and backward.
        """
        name = key, id(table), computing
        if name not in self._costs:
            rows = [_cost(operator, partition, computing, self.mesh, self._loss) for partition in table]
            self._costs[name] = Costs(*np.array(rows, np.float64).reshape(-1, 4).T)
        return self._costs[name]

    def held(self, number: int, operator: Operator) -> frozenset[int]:
        """Return the parameters of operator ``number``."""
        if number not in self._held:
            self._held[number] = frozenset(operand.parameter for operand in operator.parameters)
        return self._held[number]

    def reads(self, number: int, operator: Operator) -> tuple[Read, ...]:
        """Return what operator ``number`` reads of others, worked out once for all stages."""
        if number not in self._reads:
            self._reads[number] = tuple(
                self._read(operator, operand) for operand in operator.operands if operand.source >= 0
            )
        return self._reads[number]

    def _read(self, operator: Operator, operand: Operand) -> Read:
        plain = replace(operand, source=0)
        alike = self._number((operand.source, operand.dims, operator.sizes))
        return Read(operand.source, plain, self._number(plain), alike)

    def _number(self, value: object) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    def resharding_seconds(
        self, key: object, operator: Operator, read: Read, source: Table, reader: Table, alike: int
    ) -> Floats:
        """Return the seconds of resharding between two of these strategies, looked up once."""
        name = key, id(source), id(reader), read.number, alike
        if name not in self._resharding:
            found = resharding_seconds(source, operator, read.plain, reader, self.mesh, alike)
            self._resharding[name] = found
        return self._resharding[name]


def _cost(
    operator: Operator, partition: OperatorPartition, computing: float, mesh: Mesh, loss: LossOfParts
) -> tuple[float, float, float, float]:
    sent = part.operator_traffic(operator, partition, mesh)
    moves = (*sent.forward, *sent.backward)
    each, once = split_seconds(moves, mesh)
    return (
        computing / part.timed_parts(operator, partition.loops, mesh, loss) + each,
        once,
        part.parameter_bytes(operator, partition, mesh),
        part.stash_bytes(operator, partition, mesh),
    )


def split_seconds(moves: Sequence[MeshCollective], mesh: Mesh) -> tuple[float, float]:
    """Return the seconds of collectives of every pass, and of those once a step.

    Gradients travel in buckets, so without latency here.
    """
    often = [move for move in moves if move.per != PER_STEP]
    each = seconds(often, mesh) + sum(TIE[move.kind] for move in often)
    once = sum(
        mesh.costs[move.kind, move.axis].slope * move.bytes
        for move in moves
        if move.per == PER_STEP and mesh.sizes[move.axis] > 1
    )
    return each, once


def resharding_seconds(
    source: Table, operator: Operator, operand: Operand, reader: Table, mesh: Mesh, alike: int
) -> Floats:
    """Return the seconds to change layouts there and back.

    Shape: (choices of the source, of the reader).

    ``alike`` operators read the tensor in the same way and share what is sent.
    """
    outputs = list(dict.fromkeys(partition.output for partition in source))
    loops = list(dict.fromkeys(partition.loops for partition in reader))
    small = np.array(
        [[_resharding_cost(o, operator, operand, names, mesh) for names in loops] for o in outputs]
    )
    rows = [outputs.index(partition.output) for partition in source]
    columns = [loops.index(partition.loops) for partition in reader]
    found: Floats = small[np.ix_(rows, columns)] / alike
    return found


def _resharding_cost(
    output: Layout, operator: Operator, operand: Operand, loops: tuple[str, ...], mesh: Mesh
) -> float:
    sent = part.edge_traffic(OperatorPartition((), output), operator, operand, loops, mesh)
    return split_seconds((*sent.forward, *sent.backward), mesh)[0]
