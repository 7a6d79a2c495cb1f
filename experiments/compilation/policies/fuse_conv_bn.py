"""Batch norm folded into the convolution before it (inference).

``W' = W * s``, ``b' = (b - mean) * s + beta`` with ``s = gamma / sqrt(var + eps)`` per output channel (Jacob
et al., CVPR 2018, section 3.2; Markus, 2018).

The new weights are computed in float64 and rounded once. Refused where it would be wrong: the convolution's
result is read by anything else, its weight is shared with another op (folding would change both), a weight is
not a constant, or the norm uses the statistics of the batch (training).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from experiments.compilation.interface import (
    Applied,
    Argument,
    Draft,
    Graph,
    GraphNode,
    Ref,
    RewritePolicy,
    Rewritten,
    Symbol,
    Workbench,
)

CONVOLUTIONS = tuple(f"aten.conv{n}d.{overload}" for n in (1, 2, 3) for overload in ("default", "padding"))
TRANSPOSED = ("aten.conv_transpose1d.default", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input")
#: Where ``groups`` stands among a transposed convolution's arguments.
GROUPS_OF_TRANSPOSED = 6
BATCH_NORM = "aten._native_batch_norm_legit_no_training.default"
BATCH_STATISTICS = "aten._native_batch_norm_legit"


@dataclass(frozen=True)
class FuseConvBn(RewritePolicy):
    """Folds each batch norm in evaluation mode into the convolution before it."""

    name: ClassVar[str] = "fuse_conv_bn"
    mechanism: ClassVar[str] = "rewrite the graph"

    def rewrite(self, graph: Graph, bench: Workbench) -> Rewritten:
        draft = Draft(graph, bench.types)
        applied: list[Applied] = []
        refused: dict[str, str] = {}
        for norm in (node for node in graph.ops if node.target.startswith(BATCH_STATISTICS)):
            convolution = graph.by_name[norm.refs[0].node]
            reason = obstacle(convolution, norm, graph)
            if reason:
                refused[norm.name] = reason
            else:
                made = fold(draft, convolution, norm)
                applied.append(Applied("conv+bn", (convolution.name, norm.name), (made.node,)))
        return Rewritten(draft.finish(), tuple(applied), refused, exactness="reassociated")


def obstacle(convolution: GraphNode, norm: GraphNode, graph: Graph) -> str:
    """Why ``norm`` cannot be folded into ``convolution``; empty when it can."""
    if norm.target != BATCH_NORM:
        return "uses the statistics of the batch"
    if convolution.target not in (*CONVOLUTIONS, *TRANSPOSED):
        return f"follows {convolution.target}, not a convolution"
    if len(graph.users[convolution.name]) > 1:
        return "the convolution's result is read elsewhere too"
    if any(ref.output for ref in graph.readers if ref.node == norm.name):
        return "more than the normalized result is read"
    constants = (*convolution.inputs[1:], *norm.inputs[1:])
    if any(name not in graph.unwritten_constants for name in constants):
        return "a weight is not a constant"
    if len(graph.users[convolution.inputs[1]]) > 1:
        return "the weight is shared with another op"
    return ""


def fold(draft: Draft, convolution: GraphNode, norm: GraphNode) -> Ref:
    """Put one convolution in the place of the pair."""
    weight, bias = convolution.arguments[1], (*convolution.arguments, None, None)[2]
    assert isinstance(weight, Ref)
    kind = draft.type(weight)
    _, gamma, beta, mean, variance, _, eps = norm.arguments

    def wide(value: Argument) -> Ref:
        return draft.op("aten._to_copy.default", value, dtype=Symbol("dtype", "float64"), once=True)

    def op(target: str, *arguments: Argument) -> Ref:
        return draft.op(target, *arguments, once=True)

    def narrow(value: Ref) -> Ref:
        return draft.op("aten._to_copy.default", value, dtype=Symbol("dtype", kind.dtype), once=True)

    scale = op("aten.rsqrt.default", op("aten.add.Scalar", wide(variance), eps))
    if gamma is not None:
        scale = op("aten.mul.Tensor", scale, wide(gamma))
    shift = op("aten.neg.default", wide(mean))
    if bias is not None:
        shift = op("aten.add.Tensor", shift, wide(bias))
    shift = op("aten.mul.Tensor", shift, scale)
    if beta is not None:
        shift = op("aten.add.Tensor", shift, wide(beta))
    scaled = _scale_weight(draft, convolution, wide(weight), scale, kind.shape)
    arguments = (convolution.arguments[0], narrow(scaled), narrow(shift), *convolution.arguments[3:])
    keywords: dict[str, Any] = dict(convolution.keywords)
    made = draft.op(convolution.target, *arguments, **keywords)
    draft.replace(Ref(norm.name), made)
    return made


def _scale_weight(
    draft: Draft, convolution: GraphNode, weight: Ref, scale: Ref, shape: tuple[int, ...]
) -> Ref:
    """Return the weight times the scale of its output channel.

    Axis 0, or, transposed, axis 1 inside each group of axis 0.
    """
    rest = len(shape) - 2
    if convolution.target in CONVOLUTIONS:
        by_channel = draft.op("aten.view.default", scale, (shape[0], 1, *(1,) * rest), once=True)
        return draft.op("aten.mul.Tensor", weight, by_channel, once=True)
    arguments = convolution.arguments
    groups = arguments[GROUPS_OF_TRANSPOSED] if len(arguments) > GROUPS_OF_TRANSPOSED else 1
    assert isinstance(groups, int)
    grouped = (groups, shape[0] // groups, *shape[1:])
    parts = draft.op("aten.reshape.default", weight, grouped, once=True)
    by_channel = draft.op("aten.view.default", scale, (groups, 1, shape[1], *(1,) * rest), once=True)
    return draft.op(
        "aten.view.default", draft.op("aten.mul.Tensor", parts, by_channel, once=True), shape, once=True
    )
