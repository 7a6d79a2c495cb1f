"""From a partition of every operator to a plan: shardings of layers that the event simulator carries out.

A layer's share of compute, parameters and kept activations follows from those of its operators; its
collectives are those of its operators and of what these read. Readers of one tensor that want the same of it
fetch it once, and add up their gradients before they are reduced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.parallel.interface import (
    PER_SAMPLE,
    PER_STEP,
    Collective,
    ParallelPlan,
    PlanningEstimate,
    Sharding,
)
from experiments.parallel.planning.meshes import partition as part
from experiments.parallel.planning.meshes.layouts import Layout, MeshCollective, count_parts, seconds
from experiments.parallel.planning.meshes.mesh import Mesh
from experiments.parallel.planning.meshes.partition import OperatorPartition, OperatorTraffic
from experiments.parallel.planning.operators.one_group import (
    OperatorParts,
    layer_sharding,
    numbers_by_layer,
    one_group_plan,
)
from experiments.parallel.planning.operators.operators import operators_of
from experiments.parallel.planning.operators.part_loss import LossOfParts, PartLoss
from experiments.workloads.einsum import Operator
from experiments.workloads.layers import LayerGraph

#: What the notes say of the simulated step.
CARRIED = (
    "simulated: a layer computes, then sends; gradients are reduced once a step, during the "
    "backward passes that are left; "
    "the prediction adds up compute and collectives and leaves out the update of weights"
)


@dataclass
class LayerTraffic:
    """What one layer sends, in order."""

    forward: list[MeshCollective] = field(default_factory=list)
    backward: list[MeshCollective] = field(default_factory=list)

    def add(self, traffic: OperatorTraffic) -> None:
        self.forward += traffic.forward
        self.backward += traffic.backward


def traffic_by_layer(
    operators: Sequence[Operator], chosen: Sequence[OperatorPartition], mesh: Mesh, first: int = 0
) -> dict[int, LayerTraffic]:
    """Return what each layer sends.

    ``operators`` are those of a stage, from number ``first`` of the model on; a tensor from outside
    arrives as it is wanted.
    """
    found: dict[int, LayerTraffic] = {}
    seen: set[tuple[str, int, int, Layout]] = set()
    held: set[int] = set()
    for operator, partition in zip(operators, chosen, strict=True):
        layer = found.setdefault(operator.layer, LayerTraffic())
        for place, operand in enumerate(operator.operands):
            if operand.source < first:
                continue
            edge = part.edge_traffic(chosen[operand.source - first], operator, operand, partition.loops, mesh)
            wanted = "forward", operand.source, place, part.layout_read(operand, partition.loops)
            back = (
                "backward",
                operand.source,
                place,
                part.layout_of_gradient(operator, operand, partition.loops),
            )
            layer.forward += () if wanted in seen else edge.forward
            layer.backward += () if back in seen else edge.backward
            seen |= {wanted, back}
        layer.add(part.operator_traffic(operator, partition, mesh, held))
        held |= {operand.parameter for operand in operator.parameters}
    for layer in found.values():
        layer.backward = _bucketed(layer.backward)
    return found


def _bucketed(sent: Sequence[MeshCollective]) -> list[MeshCollective]:
    """Gradients of a layer that are reduced alike travel together, behind its other messages."""
    buckets: dict[tuple[str, int], float] = {}
    for move in sent:
        if move.per == PER_STEP:
            key = move.kind, move.axis
            buckets[key] = buckets.get(key, 0.0) + move.bytes
    others = [move for move in sent if move.per != PER_STEP]
    return [*others, *(MeshCollective(kind, axis, size, PER_STEP) for (kind, axis), size in buckets.items())]


def shardings(
    operators: Sequence[Operator],
    chosen: Sequence[OperatorPartition],
    mesh: Mesh,
    samples: int,
    layers: Iterable[int],
    loss: LossOfParts,
    first: int = 0,
) -> tuple[Sharding, ...]:
    """Return a sharding for each of ``layers``.

    ``operators`` (from number ``first`` of the model on) are for ``samples`` samples.
    """
    traffic = traffic_by_layer(operators, chosen, mesh, first)
    found = []
    for layer, numbers in numbers_by_layer(operators, layers).items():
        members = [(operators[i], chosen[i]) for i in numbers]
        if members:
            found.append(_sharding(layer, members, traffic.get(layer), mesh, samples, loss))
    return tuple(found)


def _sharding(
    layer: int,
    members: Sequence[tuple[Operator, OperatorPartition]],
    traffic: LayerTraffic | None,
    mesh: Mesh,
    samples: int,
    loss: LossOfParts,
) -> Sharding:
    sent = traffic or LayerTraffic()
    return layer_sharding(
        layer,
        _axes(members),
        [_parts(operator, partition, mesh, loss) for operator, partition in members],
        (_collective(move, mesh, samples) for move in sent.forward),
        (_collective(move, mesh, samples) for move in sent.backward),
    )


def _parts(operator: Operator, partition: OperatorPartition, mesh: Mesh, loss: LossOfParts) -> OperatorParts:
    weights = (count_parts(layout, mesh.sizes) for _, layout in part.weight_layouts(operator, partition))
    work = part.timed_parts(operator, partition.loops, mesh, loss)
    return OperatorParts(operator, work, tuple(weights), count_parts(partition.output, mesh.sizes))


def _axes(members: Sequence[tuple[Operator, OperatorPartition]]) -> str:
    """The loops that the heavy operators divide, each once: what is cut, for people."""
    names = [name for operator, p in members if not operator.light for name in p.loops if name]
    return " ".join(dict.fromkeys(names)) or "replicated"


def _collective(move: MeshCollective, mesh: Mesh, samples: int) -> Collective:
    ranks, stride = mesh.sizes[move.axis], mesh.strides[move.axis]
    size = move.bytes / samples if move.per == PER_SAMPLE else move.bytes
    return Collective(move.kind, size, ranks, stride, move.per)


def bytes_by_kind(traffic: Mapping[int, LayerTraffic]) -> dict[str, float]:
    """Bytes of vectors by collective in a forward and a backward pass, with the gradients of a step."""
    found: dict[str, float] = {}
    for layer in traffic.values():
        for move in (*layer.forward, *layer.backward):
            found[move.kind] = found.get(move.kind, 0.0) + move.bytes
    return dict(sorted(found.items()))


def pass_seconds(traffic: Mapping[int, LayerTraffic], mesh: Mesh) -> tuple[float, float]:
    """Seconds of collectives in a forward and backward pass, and once a step."""
    sent = [move for layer in traffic.values() for move in (*layer.forward, *layer.backward)]
    once = [move for move in sent if move.per == PER_STEP]
    return seconds([move for move in sent if move.per != PER_STEP], mesh), seconds(once, mesh)


def whole_mesh_plan(
    model: LayerGraph,
    mesh: Mesh,
    chosen: Sequence[OperatorPartition],
    batch: int,
    micro_batches: int,
    notes: Mapping[str, Any],
    estimate: PlanningEstimate,
) -> ParallelPlan:
    """All devices work on every layer: one stage on one worker, one micro-batch after another."""
    samples = batch // micro_batches
    operators = operators_of(model, samples)
    loss = PartLoss(estimate, samples)
    cut = shardings(operators, chosen, mesh, samples, range(len(model)), loss)
    told = {**notes, **predict_step(operators, chosen, mesh, model, batch, micro_batches, loss)}
    axes = tuple(zip(mesh.names, mesh.sizes, strict=True))
    return one_group_plan(axes, len(model), batch, cut, told, micro_batches)


def predict_step(
    operators: Sequence[Operator],
    chosen: Sequence[OperatorPartition],
    mesh: Mesh,
    model: LayerGraph,
    batch: int,
    micro_batches: int,
    loss: LossOfParts,
) -> dict[str, Any]:
    """Seconds a step with nothing overlapped, and what is sent."""
    traffic = traffic_by_layer(operators, chosen, mesh)
    each, once = pass_seconds(traffic, mesh)
    computing = sum(
        seconds_of(model, operator) / part.timed_parts(operator, p.loops, mesh, loss)
        for operator, p in zip(operators, chosen, strict=True)
    )
    return {
        "mesh": mesh.to_json(),
        "predicted_step_time": computing * batch + micro_batches * each + once,
        "compute_time": computing * batch,
        "communication_time": micro_batches * each,
        "gradient_time": once,
        "bytes_by_collective": bytes_by_kind(traffic),
        "simulation": CARRIED,
    }


def seconds_of(model: LayerGraph, operator: Operator) -> float:
    """Forward and backward seconds of an operator for one sample, on one device."""
    layer = operator.layer
    whole = float(model.forward_seconds[layer] + model.backward_seconds[layer])
    return whole * operator.share / model.batch
