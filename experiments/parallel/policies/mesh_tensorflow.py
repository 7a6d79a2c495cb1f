"""Mesh-TensorFlow (Shazeer et al., NeurIPS'18): rules from names of dimensions to axes of the mesh.

Followed: section 3: a tensor dimension whose name has a rule is divided along that axis, an einsum runs on
slices and is followed by an all-reduce over the divided dimensions that it sums, everything else is a reshape
(cut, gather, all-to-all). A layout is refused where two dimensions of one tensor have the same axis; a
dimension that an axis does not divide is refused there too, and by default stays whole here (vocabularies
rarely divide).

Names are those of ``workloads.einsum``: batch, sequence, hidden, feedforward, heads, vocabulary, experts of
language models, batch, channel, height, width of image models; a summed dimension of the same name as a
result's is ``channel.in``. Left open by the paper: who chooses the rules (the user, here knobs). Where rows
go to experts, the devices keep their own rows' part of every expert's capacity before the exchange, as in
GShard.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from experiments.core.errors import BadInput
from experiments.core.knobs import knob, open_knob
from experiments.hardware import Hardware
from experiments.parallel.interface import ParallelPlan, ParallelPolicy, PlanningEstimate, whole_share
from experiments.parallel.planning.meshes import partition as part
from experiments.parallel.planning.meshes.axis_rules import axis_rules
from experiments.parallel.planning.meshes.mesh import Mesh, mesh_on
from experiments.parallel.planning.meshes.mesh_plan import whole_mesh_plan
from experiments.parallel.planning.meshes.partition import OperatorPartition
from experiments.parallel.planning.operators.operators import operators_of
from experiments.parallel.planning.settings import parts_that_may_fit
from experiments.workloads.einsum import Operator
from experiments.workloads.layers import LayerGraph

AXES = DATA, MODEL = "data", "model"
RULES = "batch:data heads:model feedforward:model vocabulary:model experts:model"
#: Operators between rows in the order of the batch and rows in the order of experts.
ROUTING = ("choice", "dispatch")


@dataclass(frozen=True)
class MeshTensorFlow(ParallelPolicy):
    """Tensor dimensions are divided along the mesh axes that their names are mapped to."""

    name: ClassVar[str] = "mesh_tensorflow"
    mechanism: ClassVar[str] = "divided tensors"

    layout: str = knob(RULES, "rules DIMENSION:AXIS, separated by spaces; axes are data and model")
    model_axis: int = knob(
        0, "devices along the model axis; the others are the data axis (0: a node's)", low=0, high=4096
    )
    uneven: str = knob(
        "whole",
        "a dimension that its axis does not divide is refused or stays whole",
        choices=("whole", "refused"),
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
        mesh = two_axes(cluster, self.model_axis)
        rules = axis_rules(self.layout, r"[a-z_.]+", AXES, "a rule", "knobs.layout")
        parts = self.micro_batches or 1
        samples = whole_share(batch, parts, "samples", "knobs.micro_batches")
        operators = operators_of(model, samples)
        chosen = [_partition(operator, rules, mesh, self.uneven == "refused") for operator in operators]
        return whole_mesh_plan(model, mesh, chosen, batch, parts, {"layout": rules}, estimate)


def two_axes(cluster: Hardware, model_axis: int) -> Mesh:
    """Return axes ``data`` and ``model``, the latter over neighboring devices."""
    inner = model_axis or cluster.node.device_count
    outer = whole_share(cluster.device_count, inner, "devices", "knobs.model_axis")
    return mesh_on(cluster, [(DATA, outer), (MODEL, inner)])


def _partition(operator: Operator, rules: Mapping[str, str], mesh: Mesh, strict: bool) -> OperatorPartition:
    _check(operator, rules)
    loops = tuple(_loop(operator, rules, axis) for axis in mesh.names)
    uneven = {n: p for n, p in part.division_along(loops, mesh).items() if operator.size[n] % p}
    if strict and uneven:
        name, parts = next(iter(uneven.items()))
        raise BadInput(
            f"{name} of {operator.size[name]} in {operator.name} does not divide along {parts} devices",
            "knobs.layout",
            "a mesh that divides every dimension with a rule",
        )
    loops = tuple("" if name in uneven else name for name in loops)
    return OperatorPartition(loops, part.summed_layout(operator, loops))


def _loop(operator: Operator, rules: Mapping[str, str], axis: str) -> str:
    """The loop that the axis divides: one of the result before one that is summed."""
    named = [name for name in operator.divisible if _axis_of(operator, name, rules) == axis]
    return min(named, key=lambda name: name not in operator.output, default="")


def _axis_of(operator: Operator, name: str, rules: Mapping[str, str]) -> str | None:
    """Of experts only behind the routing, where their rows are together; until then rows are those of the
    batch.
    """
    routed = operator.kind not in ROUTING and "batch" not in operator.size
    if name == "experts":
        return rules.get(name) if routed or rules.get(name) != rules.get("batch") else None
    if name == "capacity":
        taken = routed and "experts" in operator.size and rules.get("experts") == rules.get("batch")
        return None if taken else rules.get("batch")
    return rules.get(name)


def _check(operator: Operator, rules: Mapping[str, str]) -> None:
    for dims in _tensors(operator):
        seen: dict[str, str] = {}
        for name in dims:
            axis = _axis_of(operator, name, rules) if name else None
            if axis in seen and seen[axis] != name and operator.size[name] > 1:
                what = f"{seen[axis]} and {name} of a tensor of {operator.name} have the axis {axis}"
                raise BadInput(what, "knobs.layout", "axes of their own for the dimensions of a tensor")
            if axis:
                seen[axis] = name


def _tensors(operator: Operator) -> Iterator[tuple[str, ...]]:
    yield operator.output
    yield from (operand.dims for operand in operator.operands)
