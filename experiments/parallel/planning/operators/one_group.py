"""A plan in which one group of devices works on one layer after another, each layer divided as its operators
are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from experiments.parallel.interface import (
    BACKWARD,
    FORWARD,
    Collective,
    ParallelPlan,
    Sharding,
    Slot,
    Stage,
    Worker,
)
from experiments.workloads.einsum import Operator


class OperatorParts(NamedTuple):
    """In how many parts an operator of a layer is cut.

    Its work (as many equal parts as take as long), each of its parameters, what is kept of its output.
    """

    operator: Operator
    work: float
    parameters: tuple[int, ...]
    stash: int


def one_group_plan(
    mesh: tuple[tuple[str, int], ...],
    layers: int,
    batch: int,
    shardings: Sequence[Sharding],
    notes: Mapping[str, Any],
    micro_batches: int = 1,
) -> ParallelPlan:
    """Return a plan of one stage on one worker of all devices of ``mesh``.

    Axes and their sizes; one micro-batch after another.
    """
    devices = range(math.prod(size for _, size in mesh))
    slots = tuple(Slot(kind, number, 0) for number in range(micro_batches) for kind in (FORWARD, BACKWARD))
    return ParallelPlan(
        batch=batch,
        micro_batches=micro_batches,
        mesh=mesh,
        stages=(Stage(0, layers, (0,)),),
        workers=(Worker(tuple(devices), slots),),
        shardings=tuple(shardings),
        notes=notes,
    )


def numbers_by_layer(operators: Sequence[Operator], layers: Iterable[int] = ()) -> dict[int, list[int]]:
    """The operators of each layer by their numbers, layers in order.

    An empty list for those of ``layers`` that have none.
    """
    found: dict[int, list[int]] = {layer: [] for layer in layers}
    for number, operator in enumerate(operators):
        found.setdefault(operator.layer, []).append(number)
    return dict(sorted(found.items()))


def layer_sharding(
    layer: int,
    axis: str,
    members: Sequence[OperatorParts],
    forward: Iterable[Collective],
    backward: Iterable[Collective],
) -> Sharding:
    """Return the sharding of a layer of several operators as they are divided together.

    By their share of its time, parameters, activations.
    """
    return Sharding(
        layer=layer,
        axis=axis,
        compute=parts_together((one.operator.share, one.work) for one in members),
        parameters=parts_together(
            (operand.bytes, parts)
            for one in members
            for operand, parts in zip(one.operator.parameters, one.parameters, strict=True)
        ),
        activations=parts_together((one.operator.stash_bytes, one.stash) for one in members),
        forward=tuple(forward),
        backward=tuple(backward),
    )


def parts_together(entries: Iterable[tuple[float, float]]) -> float:
    """Into how many parts all entries (amount, parts) are divided together: their sum over a device's sum."""
    known = [(amount, parts) for amount, parts in entries if amount > 0]
    if len({parts for _, parts in known}) <= 1:
        return known[0][1] if known else 1
    return sum(amount for amount, _ in known) / sum(amount / parts for amount, parts in known)
