"""Triton (Tillet, Kung and Cox, MAPL 2019).

Ops carried out by kernels of ours, written in Triton's blocked language.

The policy says which op of the graph goes to which kernel; ``live.triton_kernels`` has them. A linear layer
whose only reader is an exact GELU becomes a matmul and one kernel for bias and GELU. On a GPU a matmul's
blocks are chosen by timing; elsewhere Triton's interpreter carries the kernels out, which shows that they are
right and nothing about time.

What stays with torch: the tanh form of GELU (the kernel is the exact one), norms over more than one axis,
softmax over another axis than the last, and float64, which the kernels would sum in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.compilation.interface import Graph, GraphNode, Recipe, RecipePolicy
from experiments.core.errors import BadInput
from experiments.core.knobs import knob

LINEAR, GELU = "aten.linear.default", "aten.gelu.default"
#: Op: the kernel that can stand for it.
KERNELS = {
    LINEAR: "linear",
    "aten.mm.default": "matmul",
    "aten.matmul.default": "matmul",
    GELU: "bias_gelu",
    "aten.softmax.int": "softmax",
    "aten._softmax.default": "softmax",
    "aten.layer_norm.default": "layer_norm",
    "aten.add.Tensor": "add",
}
TYPES = ("float32", "float16", "bfloat16")
#: The longest row of a layer norm that fits a block.
WIDEST = 65536


@dataclass(frozen=True)
class Triton(RecipePolicy):
    """Carries out products, softmax, GELU, layer norms and sums by Triton kernels of this lab."""

    name: ClassVar[str] = "triton"
    mechanism: ClassVar[str] = "make kernels"

    products: bool = knob(True, "linear layers and matmuls")
    activations: bool = knob(True, "softmax, and GELU with the bias before it")
    norms: bool = knob(True, "layer norms")
    sums: bool = knob(True, "elementwise sums")

    def recipe(self, graph: Graph) -> Recipe:
        if self.training:
            raise BadInput("the kernels have no backward pass", "knobs.training", "false")
        asked = self._asked_kernels()
        refused: dict[str, str] = {}
        kernels: dict[str, str] = {}
        for node in graph.ops:
            kernel = KERNELS.get(node.target)
            if kernel not in asked:
                continue
            reason = obstacle(node, graph)
            if reason:
                refused[node.name] = reason
            else:
                kernels[node.name] = kernel
        return Recipe("triton", {"kernels": _fused(kernels, graph), "refused": refused})

    def _asked_kernels(self) -> set[str]:
        groups = (
            (self.products, {"linear", "matmul"}),
            (self.activations, {"softmax", "bias_gelu"}),
            (self.norms, {"layer_norm"}),
            (self.sums, {"add"}),
        )
        return {kernel for wanted, kernels in groups if wanted for kernel in kernels}


def _fused(kernels: dict[str, str], graph: Graph) -> dict[str, str]:
    """Return a GELU that alone reads a linear layer takes it along."""
    found = dict(kernels)
    for name in [name for name, kernel in kernels.items() if kernel == "bias_gelu"]:
        source = graph.by_name[graph.by_name[name].refs[0].node]
        if kernels.get(source.name) == "linear" and len(graph.users[source.name]) == 1:
            found[name] = "linear_gelu"
            del found[source.name]
    return found


def obstacle(node: GraphNode, graph: Graph) -> str:
    """Why the kernel cannot stand for the op; empty when it can."""
    kinds = [graph.type(ref) for ref in node.refs]
    if any(kind.dtype not in TYPES for kind in kinds) or len({kind.dtype for kind in kinds}) > 1:
        return f"reads {', '.join(dict.fromkeys(kind.dtype for kind in kinds))}"
    if node.keyword("approximate", "none") != "none":
        return "is the tanh form of GELU"
    if "softmax" in node.target:
        return _softmax_obstacle(node, graph)
    if node.target == "aten.layer_norm.default":
        sizes = node.arguments[1]
        assert isinstance(sizes, tuple)
        return "" if len(sizes) == 1 and sizes[0] <= WIDEST else f"is over {sizes}"  # type: ignore[operator]
    if node.target in ("aten.mm.default", "aten.matmul.default") and any(len(k.shape) != 2 for k in kinds):
        return f"multiplies {' and '.join(str(len(k.shape)) + '-d' for k in kinds)} tensors"
    if node.target == "aten.add.Tensor":
        alike = len(kinds) == 2 and kinds[0].shape == kinds[1].shape and not node.keywords
        return "" if alike else "adds tensors of two shapes, or one scaled"
    return ""


def _softmax_obstacle(node: GraphNode, graph: Graph) -> str:
    last = len(graph.type(node.refs[0]).shape) - 1
    if node.arguments[1] not in (-1, last):
        return f"is over axis {node.arguments[1]}"
    if len(node.arguments) > 2 and node.arguments[2] not in (None, False):
        return "changes its type"
    return "" if node.keyword("dtype") is None else "changes its type"
