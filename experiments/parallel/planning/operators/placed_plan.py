"""The plan for placements of operators on blocks of devices.

Where every layer is divided by samples only, each device is a worker, each chain of layers with one placement
a stage whose replicas take whole parts of the samples: then layers on different devices run at once, as
FlexFlow means it. Otherwise all devices work on one layer after another, each on as many as its placement
has.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.parallel.interface import BACKWARD, FORWARD, ParallelPlan, Slot, Stage, Worker
from experiments.parallel.planning.operators.divisions import BATCH
from experiments.parallel.planning.operators.operator_costs import OperatorCosts
from experiments.parallel.planning.operators.sharded_plan import CARRIED, sharded_plan
from experiments.parallel.planning.operators.task_graph import OperatorPlacement

#: What the notes say of the two ways to carry a plan out.
AT_ONCE = (
    "simulated: each layer on its own devices, those that do not wait for each other at once; forward "
    "passes in the order of "
    "the layers, then backward passes"
)
ONE_AFTER_ANOTHER = f"{CARRIED}; layers that the search runs at once on different devices follow each other"


def placed_plan(
    costs: OperatorCosts, placements: Sequence[OperatorPlacement], notes: Mapping[str, Any]
) -> ParallelPlan:
    blocks = _blocks(costs, placements)
    if blocks is None:
        text = {**notes, "simulation": ONE_AFTER_ANOTHER}
        return sharded_plan(costs, [placement.degrees for placement in placements], text)
    return _replicas(costs, blocks, {**notes, "simulation": AT_ONCE})


def _blocks(costs: OperatorCosts, placements: Sequence[OperatorPlacement]) -> list[range] | None:
    """The devices of each layer, nothing where operators are divided by more than samples or one layer is on
    several blocks. Operators that take no time follow the others of their layer, and a layer without
    operators (what it did is done elsewhere) the one before.
    """
    found: dict[int, range] = {}
    for number, placement in enumerate(placements):
        operator, axes = costs.operators[number], costs.axes[number]
        if any(d > 1 and name != BATCH for name, d in zip(axes.names, placement.degrees, strict=True)):
            return None
        block = range(placement.first, placement.first + placement.parts)
        if operator.share and found.setdefault(operator.layer, block) != block:
            return None
    if costs.batch % _micro_batches(list(found.values())):
        return None
    occupied = {operator.layer for operator in costs.operators}
    blocks: list[range] = []
    for layer in range(len(costs.model)):
        alone = range(1) if layer in occupied or not blocks else blocks[-1]
        blocks.append(found.get(layer, alone))
    return blocks


def _micro_batches(blocks: Sequence[range]) -> int:
    return math.lcm(*(len(block) for block in blocks))


def _replicas(costs: OperatorCosts, blocks: Sequence[range], notes: Mapping[str, Any]) -> ParallelPlan:
    """Micro-batches are as many as the finest layer has parts; a replica takes neighboring ones."""
    borders = [0, *_borders(costs, blocks), len(blocks)]
    bounds = list(itertools.pairwise(borders))
    used = sorted({device for block in blocks for device in block})
    worker_of = {device: number for number, device in enumerate(used)}
    count = _micro_batches(blocks)
    stages = [Stage(begin, end, tuple(worker_of[d] for d in blocks[begin])) for begin, end in bounds]
    return ParallelPlan(
        batch=costs.batch,
        micro_batches=count,
        mesh=(("devices", len(used)),),
        stages=tuple(stages),
        workers=tuple(Worker((device,), _order(stages, worker_of[device], count)) for device in used),
        notes=notes,
    )


def _borders(costs: OperatorCosts, blocks: Sequence[range]) -> list[int]:
    """Layers that begin a stage: those on other devices than the layer before, and those where a graph
    branches or joins, since nothing leaves a stage before it ends. None where all layers are on the same
    devices.
    """
    if all(block == blocks[0] for block in blocks):
        return []
    read = costs.model.predecessors.lists()
    readers = costs.model.predecessors.transposed(len(blocks)).lists()
    return [
        layer
        for layer in range(1, len(blocks))
        if blocks[layer] != blocks[layer - 1] or read[layer] != [layer - 1] or readers[layer - 1] != [layer]
    ]


def _order(stages: Sequence[Stage], worker: int, micro_batches: int) -> tuple[Slot, ...]:
    """Stages in order forward and in reverse backward: no slot waits for a later one."""
    forward = []
    for number, stage in enumerate(stages):
        if worker in stage.workers:
            share = micro_batches // len(stage.workers)
            first = stage.workers.index(worker) * share
            forward += [Slot(FORWARD, m, number) for m in range(first, first + share)]
    return (*forward, *(slot._replace(kind=BACKWARD) for slot in reversed(forward)))
