"""GSPMD (Xu et al., 2021): a few annotated tensors, the rest by propagation, one program for all devices.

Followed: section 3 (annotations of inputs and weights; propagation to a fixed point with priorities,
dimensions left open), section 4 (an operator is divided along matching dimensions, a summed one that is
divided leaves an all-reduce, or a reduce-scatter where the result is divided there; everything else is a
change of layout by the cheapest of the menu: none, cut, permute, all-to-all, all-gather, halo exchange).
Weights that are kept otherwise than they are used are gathered for each pass, and their gradients scattered.

Presets are data parallelism, Megatron's cuts, the paper's two-dimensional cuts of weights and activations,
and experts of mixtures. Left open by the paper: conflicts are settled by priority, not by cost. Not
reproduced: dimensions that do not divide evenly are not divided (there they are padded), and pipelines as a
shifting buffer (here pipelines are stages).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from experiments.core.knobs import knob, open_knob
from experiments.hardware import Hardware
from experiments.parallel.interface import ParallelPlan, ParallelPolicy, PlanningEstimate, whole_share
from experiments.parallel.planning.meshes import partition as part
from experiments.parallel.planning.meshes.axis_rules import axis_rules
from experiments.parallel.planning.meshes.layouts import PARTIAL, WHOLE, Layout, loop_at
from experiments.parallel.planning.meshes.mesh import Mesh, mesh_on
from experiments.parallel.planning.meshes.mesh_plan import whole_mesh_plan
from experiments.parallel.planning.meshes.partition import OperatorPartition
from experiments.parallel.planning.operators.divisions import is_even
from experiments.parallel.planning.operators.operators import operators_of
from experiments.parallel.planning.settings import parts_that_may_fit
from experiments.parallel.policies.gspmd.propagation import Propagation, annotate, tensor_of
from experiments.workloads.einsum import Operator
from experiments.workloads.layers import LayerGraph

#: What an annotation names: a dimension of some tensors.
TENSORS = r"(inputs|weights|results)\.[a-z_.]+"
#: Annotations by preset: TENSORS.DIMENSION:AXES.
PRESETS = {
    "data": "inputs.batch:x",
    "megatron": "inputs.batch:x weights.heads:y weights.feedforward:y weights.vocabulary:y weights.experts:y",
    "2d": (
        "inputs.batch:x results.hidden:y weights.hidden:x weights.heads:y weights.feedforward:y "
        "weights.vocabulary:y"
    ),
    "experts": "inputs.batch:xy weights.experts:x results.experts:x results.capacity:y",
}


@dataclass(frozen=True)
class Gspmd(ParallelPolicy):
    """Annotations of inputs and weights spread over the graph and divide every operator."""

    name: ClassVar[str] = "gspmd"
    mechanism: ClassVar[str] = "divided tensors"

    preset: str = knob(
        "megatron", "annotations by name, or those of the next knob", choices=(*PRESETS, "custom")
    )
    annotations: str = knob(
        "", "WHAT.DIMENSION:AXES, separated by spaces: of inputs, weights or results; axes are x, y or xy"
    )
    y_axis: int = knob(
        0,
        "devices along y, neighbors; the others are x (0: a node's, 1 for data and experts)",
        low=0,
        high=4096,
    )
    open_dimensions: bool = knob(
        True, "dimensions of annotated tensors that are not named may be divided too"
    )
    micro_batches: int | None = open_knob("parts of the batch, one after another", low=1, high=65536)

    def settings(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> Iterator[Sequence[Self]]:
        """As few parts as fit."""
        return parts_that_may_fit(self, batch, estimate)

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        text = self.annotations if self.preset == "custom" else PRESETS[self.preset]
        rules = parse_annotations(text)
        inner = self.y_axis or (1 if self.preset in ("data", "experts") else cluster.node.device_count)
        outer = whole_share(cluster.device_count, inner, "devices", "knobs.y_axis")
        mesh = mesh_on(cluster, [("x", outer), ("y", inner)])
        parts = self.micro_batches or 1
        samples = whole_share(batch, parts, "samples", "knobs.micro_batches")
        operators = operators_of(model, samples)
        spread = annotate(operators, mesh, rules, self.open_dimensions).run()
        chosen = partition_operators(operators, spread)
        notes = {"annotations": text, "sweeps": spread.sweeps, "tensors_divided": len(spread.found)}
        return whole_mesh_plan(model, mesh, chosen, batch, parts, notes, estimate)


def parse_annotations(text: str) -> dict[str, dict[str, str]]:
    """Return axes by dimension, for inputs, weights and results.

    ``BadInput`` names what is no annotation.
    """
    found: dict[str, dict[str, str]] = {}
    rules = axis_rules(text, TENSORS, ("x", "y", "xy"), "an annotation", "knobs.annotations")
    for place, axes in rules.items():
        tensors, _, name = place.partition(".")
        found.setdefault(tensors, {})[name] = axes
    return found


def partition_operators(operators: Sequence[Operator], spread: Propagation) -> list[OperatorPartition]:
    """Return how each operator is carried out once every tensor has its layout."""
    return [_partition(number, operator, spread) for number, operator in enumerate(operators)]


def _partition(number: int, operator: Operator, spread: Propagation) -> OperatorPartition:
    output = spread.layout(("result", number))
    loops = tuple(_loop(number, operator, axis, output, spread) for axis in range(len(output)))
    loops = tuple(
        name if is_even(operator, part.division_along([name], _one(spread.mesh, axis))) else ""
        for axis, name in enumerate(loops)
    )
    raw = part.layout_made(operator, loops)
    handed = tuple(
        (entry if own in (PARTIAL, WHOLE) else own) for own, entry in zip(raw, output, strict=True)
    )
    kept = tuple(
        spread.layout(tensor_of(operand, number, place))
        for place, operand in enumerate(operator.operands)
        if operand.parameter >= 0
    )
    return OperatorPartition(loops, handed, kept)


def _one(mesh: Mesh, axis: int) -> Mesh:
    return Mesh(mesh.names[axis : axis + 1], mesh.sizes[axis : axis + 1], {})


def _loop(number: int, operator: Operator, axis: int, output: Layout, spread: Propagation) -> str:
    """The loop that an axis divides: a summed one where all operands that have it are (or can be) cut so,
    else the result's.

    Where operands are cut along the result's own dimension too, that one comes first.
    """
    own = loop_at(operator.output, output[axis])
    read = [
        loop_at(operand.dims, spread.layout(tensor_of(operand, number, place))[axis])
        for place, operand in enumerate(operator.operands)
    ]
    data = [name for name, operand in zip(read, operator.operands, strict=True) if operand.parameter < 0]
    summed = next((name for name in data if name in operator.contracted), "")
    agreed = all(
        name in ("", summed)
        for name, operand in zip(read, operator.operands, strict=True)
        if summed in operand.dims
    )
    return summed if summed and agreed and own not in data else own
