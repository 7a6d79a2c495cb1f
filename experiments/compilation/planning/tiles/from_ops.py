"""What an op of a graph computes as a tensor expression, and which of its operands the expression reads.

Ops without a form of their own are element-wise where their operands broadcast to the result; the others are
priced as copies of their result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from experiments.compilation.interface import Argument, Graph, GraphNode, Ref, TensorType
from experiments.compilation.interface.expressions import Expression, Sizes
from experiments.compilation.planning.tiles import operators
from experiments.core.units import DTYPE_BYTES

#: The expression, and the tensors that it reads in the order of its inputs.
Made = tuple[Expression, tuple[Ref, ...]]


def dtype_of(kind: TensorType) -> str:
    """Our name for a tensor's type; unknown small floats count as one byte."""
    return kind.dtype if kind.dtype in DTYPE_BYTES else "float8"


def _tensors(node: GraphNode, graph: Graph) -> list[tuple[Ref, TensorType]]:
    return [(ref, graph.type(ref)) for ref in dict.fromkeys(node.refs)]


def _result(node: GraphNode) -> TensorType:
    return next(out for out in node.outputs if out is not None)


def _sizes(value: Argument, count: int, default: int) -> Sizes:
    """Return a size argument as ``count`` numbers: one number counts for all."""
    if not isinstance(value, tuple) or not value:
        return (value if isinstance(value, int) else default,) * count
    numbers = tuple(int(entry) for entry in value if isinstance(entry, int))
    return numbers * count if len(numbers) == 1 else numbers


def _argument(node: GraphNode, place: int, default: Argument = None) -> Argument:
    return node.arguments[place] if place < len(node.arguments) else default


def _dimensions(value: Argument, rank: int) -> tuple[int, ...]:
    numbers = value if isinstance(value, tuple) else (value,)
    wanted = tuple(int(entry) % rank for entry in numbers if isinstance(entry, int))
    return wanted or tuple(range(rank))


def _linear(node: GraphNode, graph: Graph) -> Made:
    refs = node.refs
    given, weight = graph.type(refs[0]), graph.type(refs[1])
    *lead, inputs = given.shape
    made = operators.linear(lead, inputs, weight.shape[0], dtype_of(given))
    return (operators.with_bias(made, -1) if len(refs) > 2 else made), refs


def _product(node: GraphNode, graph: Graph) -> Made | None:
    """mm, bmm and matmul of equal batches; addmm reads its bias last."""
    refs = node.refs
    if node.target.startswith(("aten.addmm", "aten.baddbmm")):
        refs = (refs[1], refs[2], refs[0])
    left, right = graph.type(refs[0]).shape, graph.type(refs[1]).shape
    if len(left) < 2 or len(right) < 2 or left[:-2] != right[:-2]:
        return None
    dtype = dtype_of(graph.type(refs[0]))
    made = operators.matmul(left[-2], right[-1], left[-1], dtype, batch=left[:-2])
    if len(refs) > 2:
        made = operators.with_bias(made, -1)
    return made, refs


def _convolution(node: GraphNode, graph: Graph) -> Made | None:
    given, weight = (graph.type(ref) for ref in node.refs[:2])
    rank = len(weight.shape) - 2
    if len(given.shape) != rank + 2 or isinstance(_argument(node, 4), str) or _argument(node, 6) is True:
        return None
    full = node.target == "aten.convolution.default"
    stride = _sizes(_argument(node, 3), rank, 1)
    padding, dilation = (_sizes(_argument(node, place), rank, place - 4) for place in (4, 5))
    groups = _argument(node, 8 if full else 6, 1)
    made = operators.convolution(
        given.shape[0],
        given.shape[1],
        given.shape[2:],
        weight.shape[0],
        weight.shape[2:],
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups if isinstance(groups, int) else 1,
        dtype=dtype_of(given),
    )
    return (operators.with_bias(made, 1) if len(node.refs) > 2 else made), node.refs


def _pool(node: GraphNode, graph: Graph) -> Made | None:
    given = graph.type(node.refs[0])
    rank = len(_result(node).shape) - 2
    kernel = _sizes(_argument(node, 1), rank, 1)
    stride = _argument(node, 2)
    # A mean has there how its size is rounded; its windows have no gaps.
    dilation = _argument(node, 4) if "max_pool" in node.target else None
    made = operators.pooling(
        given.shape[0],
        given.shape[1],
        given.shape[2:],
        kernel,
        stride=_sizes(stride, rank, 1) if stride else kernel,
        padding=_sizes(_argument(node, 3), rank, 0),
        dilation=_sizes(dilation, rank, 1),
        dtype=dtype_of(given),
    )
    return (made, node.refs[:1]) if made.output.shape == _result(node).shape else None


def _adaptive_pool(node: GraphNode, graph: Graph) -> Made | None:
    """Windows of one size where the output divides the input; one window: a reduction."""
    given, out = graph.type(node.refs[0]), _result(node).shape
    rank = len(out) - 2
    image, wanted = given.shape[2:], out[2:]
    if all(size == 1 for size in wanted):
        over = tuple(range(2, 2 + rank))
        return operators.reduction(given.shape, over, dtype_of(given), keep=True), node.refs[:1]
    if any(length % size for length, size in zip(image, wanted, strict=True)):
        return None
    kernel = tuple(length // size for length, size in zip(image, wanted, strict=True))
    return operators.pooling(given.shape[0], given.shape[1], image, kernel, dtype=dtype_of(given)), node.refs[
        :1
    ]


def _reduction(node: GraphNode, graph: Graph) -> Made | None:
    given, out = graph.type(node.refs[0]), _result(node).shape
    if not given.shape:
        return None
    over = _dimensions(_argument(node, 1), len(given.shape))
    keep = len(out) == len(given.shape)
    return operators.reduction(given.shape, over, dtype_of(given), keep=keep), node.refs[:1]


def _softmax(node: GraphNode, graph: Graph) -> Made:
    given = graph.type(node.refs[0])
    over = _dimensions(_argument(node, 1, -1), len(given.shape))
    return operators.rowwise(given.shape, over, dtype_of(given)), node.refs[:1]


def _layer_norm(node: GraphNode, graph: Graph) -> Made:
    given = graph.type(node.refs[0])
    normalized = _argument(node, 1)
    count = len(normalized) if isinstance(normalized, tuple) else 1
    over = tuple(range(len(given.shape) - count, len(given.shape)))
    made = operators.rowwise(
        given.shape,
        over,
        dtype_of(given),
        flops=operators.NORMALIzATION_FLOPS,
        parameters=len(node.refs) - 1,
    )
    return made, node.refs


def _batch_norm(node: GraphNode, graph: Graph) -> Made:
    """In evaluation: a scale and a shift of every channel from four vectors."""
    given = graph.type(node.refs[0])
    channel = (given.shape[1], *(1,) * (len(given.shape) - 2))
    operands = (given.shape, *(channel for _ in node.refs[1:]))
    return operators.elementwise(given.shape, operands, dtype_of(given), flops=4.0), node.refs


def _embedding(node: GraphNode, graph: Graph) -> Made:
    """One row of the table for every index."""
    out, (table, indices) = _result(node), node.refs[:2]
    given = graph.type(indices).shape
    made = operators.elementwise(out.shape, (out.shape, (*given, 1)), dtype_of(out), flops=0.0)
    return made, (table, indices)


def broadcast(node: GraphNode, graph: Graph) -> Made | None:
    """Return an op whose operands all broadcast to its result, as an element-wise operator."""
    out, pairs = _result(node), _tensors(node, graph)
    shape = out.shape or (1,)
    if not pairs or any(not _broadcasts(kind.shape, shape) for _, kind in pairs):
        return None
    operands = tuple(kind.shape or (1,) for _, kind in pairs)
    return operators.elementwise(shape, operands, dtype_of(out)), tuple(ref for ref, _ in pairs)


def _broadcasts(shape: Sizes, to: Sizes) -> bool:
    return len(shape) <= len(to) and all(
        own in (1, whole) for own, whole in zip(reversed(shape), reversed(to), strict=False)
    )


def copy(node: GraphNode, graph: Graph) -> Made:
    """Return an op of no known form.

    As many elements read as its operands have together, its result written.
    """
    out = _result(node)
    shape = out.shape or (1,)
    made = operators.elementwise(shape, (shape,), dtype_of(out), flops=0.0)
    read = sum(kind.elements for _, kind in _tensors(node, graph))
    source = replace(made.inputs[0], repeats=math.prod(shape) / max(1, read))
    return replace(made, inputs=(source,)), node.refs


FORMS: Mapping[str, Callable[[GraphNode, Graph], Made | None]] = {
    "linear": _linear,
    **dict.fromkeys(("mm", "bmm", "matmul", "addmm", "baddbmm"), _product),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution"), _convolution),
    **dict.fromkeys(
        ("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d"), _pool
    ),
    **dict.fromkeys(("max_pool2d_with_indices",), _pool),
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_avg_pool2d", "_adaptive_avg_pool2d"), _adaptive_pool),
    **dict.fromkeys(
        ("sum", "mean", "amax", "amin", "var", "prod", "argmax", "argmin", "logsumexp"), _reduction
    ),
    **dict.fromkeys(("softmax", "_softmax", "log_softmax", "_log_softmax"), _softmax),
    **dict.fromkeys(("layer_norm", "rms_norm"), _layer_norm),
    "_native_batch_norm_legit_no_training": _batch_norm,
    "embedding": _embedding,
}
