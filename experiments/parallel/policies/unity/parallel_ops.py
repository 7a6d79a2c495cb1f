"""Unity's parallel computation graph: parallelism as operators between operators, and how one graph becomes
another.

Source: Unger et al., "Unity: Accelerating DNN Training Through Joint Optimization of Algebraic
Transformations and Parallelization", OSDI'22, sections 3 and 4. A tensor has a degree for each dimension and
a replica dimension. Partition divides a dimension, Combine puts its parts together; Replicate copies, Reduce
sums copies up. Each is the other's gradient.

An operator whose loop is divided k ways stands between parallel operators: each operand that the loop walks
is partitioned there, any other is replicated, and the result is combined along that loop or, where the loop
is summed over, reduced. Between two operators what one undoes of the other goes away; what is left are the
transfers of the graph. So a graph is given by the degrees of its operators, and a substitution changes those
of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from experiments.parallel.planning.operators.divisions import Axes, Configuration
from experiments.workloads.einsum import Operand, Operator

PARTITION, COMBINE, REPLICATE, REDUCE = "partition", "combine", "replicate", "reduce"
GRADIENTS = {PARTITION: COMBINE, COMBINE: PARTITION, REPLICATE: REDUCE, REDUCE: REPLICATE}
#: The replica dimension.
REPLICA = -1


class ParallelOp(NamedTuple):
    """One parallel operator: of a tensor's dimension ``axis`` (``REPLICA`` for copies), ``degree`` ways."""

    kind: str
    axis: int
    degree: int

    @property
    def gradient(self) -> ParallelOp:
        return self._replace(kind=GRADIENTS[self.kind])


def entering(operand: Operand, axes: Axes, configuration: Configuration) -> list[ParallelOp]:
    """Return the parallel operators in front of an operand of an operator."""
    return _along(operand.dims, axes, configuration, PARTITION, REPLICATE)


def leaving(operator: Operator, axes: Axes, configuration: Configuration) -> list[ParallelOp]:
    """Return the parallel operators behind an operator."""
    return _along(operator.output, axes, configuration, COMBINE, REDUCE)


def _along(
    dims: Sequence[str], axes: Axes, configuration: Configuration, inside: str, outside: str
) -> list[ParallelOp]:
    """One for each divided loop: ``inside`` for a dimension of the tensor, ``outside`` for a loop that it
    lacks.
    """
    return [
        ParallelOp(inside, dims.index(name), degree) if name in dims else ParallelOp(outside, REPLICA, degree)
        for name, degree in zip(axes.names, configuration, strict=True)
        if degree > 1
    ]


def simplified(ops: list[ParallelOp]) -> list[ParallelOp]:
    """Return ``ops`` without the parts of a Combine that a Partition restores.

    The Partition is of the same dimension.
    """
    kept = [op for op in ops if op.kind in (REPLICATE, REDUCE)]
    combined = {op.axis: op.degree for op in ops if op.kind == COMBINE}
    divided = {op.axis: op.degree for op in ops if op.kind == PARTITION}
    for axis in sorted(combined.keys() | divided.keys()):
        kept += _on_axis(axis, combined.get(axis, 1), divided.get(axis, 1))
    return sorted(kept, key=lambda op: (REDUCE, COMBINE, PARTITION, REPLICATE).index(op.kind))


def _on_axis(axis: int, before: int, after: int) -> list[ParallelOp]:
    if after % before == 0:
        return [ParallelOp(PARTITION, axis, after // before)] if after > before else []
    if before % after == 0:
        return [ParallelOp(COMBINE, axis, before // after)]
    return [ParallelOp(COMBINE, axis, before), ParallelOp(PARTITION, axis, after)]


def substitutions(configuration: Configuration, factors: tuple[int, ...]) -> Iterator[Configuration]:
    """Return configurations with one more, one less or one moved parallel operator.

    A Partition (or Replicate) around the operator, or one moved to another loop, for each of the prime
    ``factors`` of the devices.
    """
    for factor in factors:
        for add in range(len(configuration)):
            more = _times(configuration, add, factor)
            yield more
            for take in range(len(configuration)):
                if take != add and configuration[take] % factor == 0:
                    yield _divided(more, take, factor)
        for take in range(len(configuration)):
            if configuration[take] % factor == 0:
                yield _divided(configuration, take, factor)


def _times(configuration: Configuration, place: int, factor: int) -> Configuration:
    return (*configuration[:place], configuration[place] * factor, *configuration[place + 1 :])


def _divided(configuration: Configuration, place: int, factor: int) -> Configuration:
    return (*configuration[:place], configuration[place] // factor, *configuration[place + 1 :])
