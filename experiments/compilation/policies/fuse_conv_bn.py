"""Batch norm folded into the convolution before it (inference): ``W' = W * s``, ``b' = (b - mean) * s + beta`` with
``s = gamma / sqrt(var + eps)`` per output channel (Jacob et al., CVPR 2018, section 3.2; Markus, 2018).

Refused where it would be wrong: the convolution's result is read by anything else, its weight is shared with another
convolution (folding would change both), or a weight is not a constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.compilation.interface import CompilationPolicy, Graph, Node, Pass, Recipe

CONVOLUTIONS = ("aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default")
BATCH_NORM = "aten._native_batch_norm_legit_no_training.default"


def obstacle(convolution: Node, norm: Node, graph: Graph) -> str:
    """Why ``norm`` cannot be folded into ``convolution``; empty when it can."""
    if convolution.target not in CONVOLUTIONS:
        return f"follows {convolution.target}, not a convolution"
    if len(graph.users[convolution.name]) > 1:
        return "the convolution's result is read elsewhere too"
    constants = (*convolution.inputs[1:], *norm.inputs[1:])
    if any(graph.by_name[name].kind != "constant" for name in constants):
        return "a weight is not a constant"
    if len(graph.users[convolution.inputs[1]]) > 1:
        return "the weight is shared with another op"
    return ""


@dataclass(frozen=True)
class FuseConvBn(CompilationPolicy):
    """Folds each batch norm in evaluation mode into the convolution before it."""

    name: ClassVar[str] = "fuse_conv_bn"

    def recipe(self, graph: Graph) -> Recipe:
        pairs: list[tuple[str, str]] = []
        refused: dict[str, str] = {}
        for norm in (node for node in graph.ops if node.target == BATCH_NORM):
            convolution = graph.by_name[norm.inputs[0]]
            reason = obstacle(convolution, norm, graph)
            if reason:
                refused[norm.name] = reason
            else:
                pairs.append((convolution.name, norm.name))
        return Recipe(passes=(Pass("fuse_conv_bn", tuple(pairs), refused),))
