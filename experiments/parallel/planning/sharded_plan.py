"""A plan in which all devices of the cluster work on one layer after another, each layer divided in its own way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from experiments.parallel.planning.configurations import Configuration
from experiments.parallel.planning.layer_costs import MIRRORED, LayerCosts

#: What the notes say of the simulated step.
CARRIED = (
    "simulated: one layer after another on all devices, transfers between layers on the way, gradients reduced beside the "
    "backward passes that are left; the prediction adds all of them up and leaves out the update of weights"
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
    costs: LayerCosts, chosen: Sequence[Configuration], notes: Mapping[str, Any]
) -> ParallelPlan:
    """The plan for one configuration of every layer; ``costs`` knows batch, model and cluster."""
    shardings = [_sharding(costs, chosen, layer) for layer in range(len(chosen))]
    return one_group_plan(costs.wires.devices, len(chosen), costs.batch, shardings, notes)


def _sharding(costs: LayerCosts, chosen: Sequence[Configuration], layer: int) -> Sharding:
    choice = chosen[layer]
    forward = tuple(_transfers(costs, chosen, layer))
    backward = [Collective(MIRRORED[c.kind], c.bytes, c.ranks) for c in forward]
    reduced = costs.reduction(layer, choice)
    return Sharding(
        layer=layer,
        axis=str(choice),
        compute=choice.parts,
        parameters=choice.weight_parts(costs.dims[layer]),
        activations=choice.parts,
        forward=forward,
        backward=(*backward, *([reduced] if reduced else [])),
    )


def _transfers(costs: LayerCosts, chosen: Sequence[Configuration], layer: int) -> Iterator[Collective]:
    """What the layer must fetch from those that it reads, as a collective in which each device receives so much."""
    for source in costs.model.predecessors[layer].tolist():
        found = costs.exchange(source, layer, [chosen[source]], [chosen[layer]])
        received, ranks = float(found.received[0, 0]), int(found.ranks[0, 0])
        if received:
            kind = "all_gather" if found.gathers[0, 0] else "all_to_all"
            yield Collective(kind, received * ranks / (ranks - 1) / costs.batch, ranks)
