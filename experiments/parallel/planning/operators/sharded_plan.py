"""A plan in which all devices of the cluster work on one layer after another, each operator divided in its
own way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.parallel.interface import Collective, ParallelPlan, Sharding
from experiments.parallel.planning.operators.divisions import Configuration
from experiments.parallel.planning.operators.one_group import (
    OperatorParts,
    layer_sharding,
    numbers_by_layer,
    one_group_plan,
)
from experiments.parallel.planning.operators.operator_costs import MIRRORED, OperatorCosts

#: What the notes say of the simulated step.
CARRIED = (
    "simulated: one layer after another on all devices, transfers between operators on the way, gradients "
    "reduced during the backward passes that are left; the prediction adds all of them up "
    "and leaves out the update of weights"
)


def sharded_plan(
    costs: OperatorCosts, chosen: Sequence[Configuration], notes: Mapping[str, Any]
) -> ParallelPlan:
    """The plan for one configuration of every operator; ``costs`` knows micro-batches, model and cluster."""
    shardings = [
        _sharding(costs, chosen, layer, inside) for layer, inside in numbers_by_layer(costs.operators).items()
    ]
    mesh = (("devices", costs.devices),)
    batch = costs.batch * costs.micro_batches
    return one_group_plan(mesh, len(costs.model), batch, shardings, notes, costs.micro_batches)


def _sharding(
    costs: OperatorCosts, chosen: Sequence[Configuration], layer: int, inside: Sequence[int]
) -> Sharding:
    forward, backward, reduced = [], [], []
    for number in inside:
        arriving = list(operand_fetches(costs, chosen, number))
        summed = costs.summation(number, chosen[number])
        forward += [*arriving, *([_a_sample(summed, costs.batch)] if summed else [])]
        backward += [Collective(MIRRORED[c.kind], c.bytes, c.ranks) for c in arriving]
        reduced += costs.reductions(number, chosen[number])
    members = [_parts(costs, number, chosen[number]) for number in inside]
    return layer_sharding(
        layer, _axis(costs, chosen, inside), members, forward, (*reversed(backward), *reduced)
    )


def _parts(costs: OperatorCosts, number: int, choice: Configuration) -> OperatorParts:
    operator, axes = costs.operators[number], costs.axes[number]
    parameters = tuple(axes.parts_of(choice, operand.dims) for operand in operator.parameters)
    return OperatorParts(operator, costs.work_parts(number, choice), parameters, math.prod(choice))


def _axis(costs: OperatorCosts, chosen: Sequence[Configuration], inside: Sequence[int]) -> str:
    """How each operator that takes time is divided, repeated ones once."""
    busy = [n for n in inside if costs.operators[n].share] or inside
    return " | ".join(dict.fromkeys(costs.axes[n].text(chosen[n]) for n in busy))


def operand_fetches(
    costs: OperatorCosts, chosen: Sequence[Configuration], number: int
) -> Iterator[Collective]:
    """What an operator must fetch from those that it reads.

    They are collectives in which each device receives so much.
    """
    sources = dict.fromkeys(o.source for o in costs.operators[number].operands if o.source >= 0)
    for source in sources:
        found = costs.exchange(source, number, [chosen[source]], [chosen[number]])
        received, ranks = float(found.received[0, 0]), int(found.ranks[0, 0])
        if received:
            kind = "all_gather" if found.gathers[0, 0] else "all_to_all"
            yield Collective(kind, received * ranks / (ranks - 1) / costs.batch, ranks)


def _a_sample(collective: Collective, batch: int) -> Collective:
    return Collective(collective.kind, collective.bytes / batch, collective.ranks, collective.stride)
