"""A plan in which all devices of the cluster work on one layer after another, each operator divided in its own way."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

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
from experiments.parallel.planning.operators.divisions import Configuration
from experiments.parallel.planning.operators.operator_costs import MIRRORED, OperatorCosts

#: What the notes say of the simulated step.
CARRIED = (
    "simulated: one layer after another on all devices, transfers between operators on the way, gradients reduced beside "
    "the backward passes that are left; the prediction adds all of them up and leaves out the update of weights"
)


def one_group_plan(
    devices: int, layers: int, batch: int, shardings: Sequence[Sharding], notes: Mapping[str, Any]
) -> ParallelPlan:
    """One stage on one worker of all ``devices``; the batch in one pass."""
    return ParallelPlan(
        batch=batch,
        micro_batches=1,
        mesh=(("devices", devices),),
        stages=(Stage(0, layers, (0,)),),
        workers=(Worker(tuple(range(devices)), (Slot(FORWARD, 0, 0), Slot(BACKWARD, 0, 0))),),
        shardings=tuple(shardings),
        notes=notes,
    )


def sharded_plan(
    costs: OperatorCosts, chosen: Sequence[Configuration], notes: Mapping[str, Any]
) -> ParallelPlan:
    """The plan for one configuration of every operator; ``costs`` knows batch, model and cluster."""
    members: dict[int, list[int]] = defaultdict(list)
    for number, operator in enumerate(costs.operators):
        members[operator.layer].append(number)
    shardings = [_sharding(costs, chosen, layer, inside) for layer, inside in sorted(members.items())]
    return one_group_plan(costs.devices, len(costs.model), costs.batch, shardings, notes)


def _sharding(
    costs: OperatorCosts, chosen: Sequence[Configuration], layer: int, inside: Sequence[int]
) -> Sharding:
    """A layer of several operators is divided as they are together: by their share of its time, parameters, activations."""
    forward, backward, reduced = [], [], []
    for number in inside:
        arriving = list(transfers(costs, chosen, number))
        summed = costs.summation(number, chosen[number])
        forward += [*arriving, *([_a_sample(summed, costs.batch)] if summed else [])]
        backward += [Collective(MIRRORED[c.kind], c.bytes, c.ranks) for c in arriving]
        reduced += costs.reductions(number, chosen[number])
    return Sharding(
        layer=layer,
        axis=_axis(costs, chosen, inside),
        compute=parts_together((costs.operators[n].share, math.prod(chosen[n])) for n in inside),
        parameters=parts_together(entry for n in inside for entry in _parameters(costs, n, chosen[n])),
        activations=parts_together((costs.operators[n].stash_bytes, math.prod(chosen[n])) for n in inside),
        forward=tuple(forward),
        backward=(*reversed(backward), *reduced),
    )


def _axis(costs: OperatorCosts, chosen: Sequence[Configuration], inside: Sequence[int]) -> str:
    """How each operator that takes time is divided, repeated ones once."""
    busy = [n for n in inside if costs.operators[n].share] or inside
    return " | ".join(dict.fromkeys(costs.axes[n].text(chosen[n]) for n in busy))


def _parameters(costs: OperatorCosts, number: int, choice: Configuration) -> Iterator[tuple[float, int]]:
    for operand in costs.operators[number].parameters:
        yield operand.bytes, costs.axes[number].degrees_of(choice, operand.dims)


def parts_together(entries: Iterable[tuple[float, int]]) -> float:
    """Into how many parts all entries (amount, parts) are divided together: their sum over a device's sum."""
    known = [(amount, parts) for amount, parts in entries if amount > 0]
    if len({parts for _, parts in known}) <= 1:
        return known[0][1] if known else 1
    return sum(amount for amount, _ in known) / sum(amount / parts for amount, parts in known)


def transfers(costs: OperatorCosts, chosen: Sequence[Configuration], number: int) -> Iterator[Collective]:
    """What an operator must fetch from those that it reads, as collectives in which each device receives so much."""
    sources = dict.fromkeys(o.source for o in costs.operators[number].operands if o.source >= 0)
    for source in sources:
        found = costs.exchange(source, number, [chosen[source]], [chosen[number]])
        received, ranks = float(found.received[0, 0]), int(found.ranks[0, 0])
        if received:
            kind = "all_gather" if found.gathers[0, 0] else "all_to_all"
            yield Collective(kind, received * ranks / (ranks - 1) / costs.batch, ranks)


def _a_sample(collective: Collective, batch: int) -> Collective:
    return Collective(collective.kind, collective.bytes / batch, collective.ranks, collective.stride)
