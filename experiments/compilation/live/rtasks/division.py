"""Which axes of a result an op can be computed along, and what of its operands a part of it reads.

Axes count from the last (-1), as broadcasting does. An op that is not listed, reads lists of tensors or has
more than its first result read has no axis: it is one block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch

from experiments.compilation.interface import Argument, Graph, GraphNode, Ref
from experiments.compilation.live.types import function

#: By axis of the result the axis of every argument (by place) that is divided with it; others are read whole.
Divisions = dict[int, dict[int, int]]
Shape = tuple[int, ...]
#: Shapes of the arguments that are tensors, by place.
Shapes = Mapping[int, Shape]
Rule = Callable[[GraphNode, Shapes], Divisions]


def divisions_of(node: GraphNode, graph: Graph) -> Divisions:
    """Return the axes of more than one entry along which ``node`` can be divided."""
    shapes = {
        place: graph.type(ref).shape for place, ref in enumerate(node.arguments) if isinstance(ref, Ref)
    }
    if not node.outputs or node.outputs[0] is None or len(shapes) < len(node.refs) or draws(node):
        return {}
    if any(Ref(node.name, number) in graph.readers for number in range(1, len(node.outputs))):
        return {}
    name = node.target.split(".")[1]
    rule = _RULES.get(name) or (_pointwise if _is_pointwise(node.target) else None)
    found = rule(node, shapes) if rule else {}
    return {axis: places for axis, places in found.items() if node.shape[axis] > 1}


def draws(node: GraphNode) -> bool:
    """Return whether an op reads a generator: attention does so only where some of it is dropped out."""
    if node.target == "aten.scaled_dot_product_attention.default":
        return bool(_argument(node, 4, node.keyword("dropout_p", 0.0)))
    return node.random


def _is_pointwise(target: str) -> bool:
    return torch.Tag.pointwise in getattr(function(target), "tags", ())


def _axes(shape: Shape) -> Iterator[int]:
    return iter(range(-1, -len(shape) - 1, -1))


def _broadcast(shapes: Shapes, axis: int, extent: int) -> dict[int, int]:
    """Return the arguments that have this axis, with that extent; the others have one entry for all."""
    return {place: axis for place, shape in shapes.items() if len(shape) >= -axis and shape[axis] == extent}


def _pointwise(node: GraphNode, shapes: Shapes) -> Divisions:
    return {axis: _broadcast(shapes, axis, node.shape[axis]) for axis in _axes(node.shape)}


def _rows(node: GraphNode, shapes: Shapes, mixed: int) -> Divisions:
    """Return all axes but the last ``mixed``, along which every result reads only its own row."""
    return {axis: {0: axis} for axis in _axes(node.shape) if axis < -mixed}


def _linear(node: GraphNode, shapes: Shapes) -> Divisions:
    features = {place: 0 for place in (1, 2) if place in shapes}
    return {-1: features} | _rows(node, shapes, 1)


def _product(node: GraphNode, shapes: Shapes) -> Divisions:
    """``left @ right`` of matrices or batches of them."""
    if min(len(shapes[0]), len(shapes[1])) < 2:
        return {}
    batch = {a: _broadcast(shapes, a, node.shape[a]) for a in _axes(node.shape) if a < -2}
    return {-1: {1: -1}, -2: {0: -2}} | batch


def _product_and_sum(node: GraphNode, shapes: Shapes) -> Divisions:
    """``addmm(summand, left, right)``; the summand may be broadcast."""
    summand = {0: shapes[0]}
    rows, columns = (_broadcast(summand, axis, node.shape[axis]) for axis in (-2, -1))
    return {-2: {1: -2, **rows}, -1: {2: -1, **columns}}


def _convolution(node: GraphNode, shapes: Shapes) -> Divisions:
    """By images, and by filters where all filters read all channels."""
    full = node.target == "aten.convolution.default"
    groups = _argument(node, 8 if full else 6, 1)
    rank = len(shapes[1])
    if len(shapes[0]) != rank or (full and _argument(node, 6, False)):
        return {}
    filters = {place: 0 for place in (1, 2) if place in shapes}
    return {-rank: {0: -rank}} | ({1 - rank: filters} if groups == 1 else {})


def _batch_norm(node: GraphNode, shapes: Shapes) -> Divisions:
    """With running statistics: ``training``, where there is such an argument, says no."""
    if _argument(node, 5, False) is True:
        return {}
    channel = 1 - len(node.shape)
    parameters = {place: 0 for place in (1, 2, 3, 4) if place in shapes}
    return {axis: {0: axis} | (parameters if axis == channel else {}) for axis in _axes(node.shape)}


def _layer_norm(node: GraphNode, shapes: Shapes) -> Divisions:
    normalized = node.arguments[1]
    return _rows(node, shapes, len(normalized) if isinstance(normalized, tuple) else 1)


def _softmax(node: GraphNode, shapes: Shapes) -> Divisions:
    mixed = int(_argument(node, 1, -1)) % len(node.shape) - len(node.shape)  # type: ignore[arg-type]
    return {axis: {0: axis} for axis in _axes(node.shape) if axis != mixed}


def _attention(node: GraphNode, shapes: Shapes) -> Divisions:
    """By batch and head; by queries too where none is masked."""
    heads = {a: _broadcast(shapes, a, node.shape[a]) for a in _axes(node.shape) if a < -2}
    same = {axis: places for axis, places in heads.items() if {0, 1, 2} <= set(places)}
    masked = 3 in shapes or bool(_argument(node, 5, node.keyword("is_causal", False)))
    return same if masked else same | {-2: {0: -2}}


def _windows(node: GraphNode, shapes: Shapes) -> Divisions:
    """Pooling: by images and channels."""
    return _rows(node, shapes, 2)


def _embedding(node: GraphNode, shapes: Shapes) -> Divisions:
    """Rows of a table: by their entries, or by the indices."""
    return {-1: {0: -1}} | {axis: {1: axis + 1} for axis in _axes(node.shape) if axis < -1}


def _argument(node: GraphNode, place: int, default: Argument) -> Argument:
    return node.arguments[place] if place < len(node.arguments) else default


_RULES: Mapping[str, Rule] = {
    "linear": _linear,
    "mm": _product,
    "bmm": _product,
    "matmul": _product,
    "addmm": _product_and_sum,
    "conv1d": _convolution,
    "conv2d": _convolution,
    "convolution": _convolution,
    "batch_norm": _batch_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "layer_norm": _layer_norm,
    "softmax": _softmax,
    "_softmax": _softmax,
    "scaled_dot_product_attention": _attention,
    "max_pool2d": _windows,
    "avg_pool2d": _windows,
    "adaptive_avg_pool2d": _windows,
    "embedding": _embedding,
    "clone": _pointwise,
    "_to_copy": _pointwise,
}
