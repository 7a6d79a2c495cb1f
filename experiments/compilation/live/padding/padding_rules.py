"""What each ATen op does to padding.

Keeps it apart, needs a neutral element in its place, or lets it leak.

A rule gives the axes of the op's results and tells the walk what must be masked. Dimensions are counted from
the front; what is neutral: 0 for sums and products over an axis, -inf for softmax and maxima, +inf for
minima, 1 for products of all entries.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from experiments.compilation.interface import GraphNode, Ref
from experiments.compilation.live.padding.axes import Axes, Leak, broadcast, new_axes, plain, reshape_axes
from experiments.compilation.live.padding.padding import PaddingWalk, Rule

INFINITY = math.inf


def _front(dimension: Any, rank: int) -> int:
    found = int(dimension)
    return found + rank if found < 0 else found


def _dimensions(given: Any, rank: int) -> set[int]:
    """Return ``None`` and () mean all of them."""
    if given is None or given == ():
        return set(range(rank))
    several = given if isinstance(given, tuple) else (given,)
    return {_front(entry, rank) for entry in several}


def _argument(node: GraphNode, place: int, name: str, default: Any = None) -> Any:
    return node.arguments[place] if place < len(node.arguments) else node.keyword(name, default)


def _same_numbers(walk: PaddingWalk, node: GraphNode, places: Iterable[int]) -> None:
    before = walk.small.by_name[node.name]
    for place in places:
        if node.arguments[place : place + 1] != before.arguments[place : place + 1]:
            raise Leak("an argument of the op depends on the size")


def pointwise(walk: PaddingWalk, node: GraphNode) -> tuple[Axes, ...]:
    """Each element from the elements at its place; a number among the arguments must not follow the size."""
    numbers = [place for place, value in enumerate(node.arguments) if not isinstance(value, Ref)]
    _same_numbers(walk, node, numbers)
    axes = broadcast([walk.of(ref) for ref in node.refs], len(node.shape))
    return tuple(axes if out is not None else () for out in node.outputs)


def creation(walk: PaddingWalk, node: GraphNode) -> tuple[Axes, ...]:
    """From sizes: the first entries are the same however many follow."""
    return (walk.fresh_axes(node),)


def view(walk: PaddingWalk, node: GraphNode) -> tuple[Axes, ...]:
    source = node.refs[0]
    return (reshape_axes(walk.shape(source), walk.of(source), node.shape, walk.entries[1]),)


def expand(walk: PaddingWalk, node: GraphNode) -> tuple[Axes, ...]:
    """Repeats: a dimension that only now has the axis's size has it as copies of one entry."""
    old = walk.of(node.refs[0])
    aligned: Axes = (*plain(len(node.shape) - len(old)), *old)
    before = walk.small.by_name[node.name].shape
    known = [size if axis else other for size, other, axis in zip(node.shape, before, aligned, strict=True)]
    fresh = new_axes(node.shape, walk.entries[1], tuple(known), walk.entries[0])
    return (tuple(axis or new for axis, new in zip(aligned, fresh, strict=True)),)


def permute(walk: PaddingWalk, node: GraphNode) -> tuple[Axes, ...]:
    axes = walk.of(node.refs[0])
    order = node.arguments[1]
    assert isinstance(order, tuple)
    return (tuple(axes[_front(place, len(axes))] for place in order),)


def transpose(walk: PaddingWalk, node: GraphNode) -> tuple[Axes, ...]:
    axes = list(walk.of(node.refs[0]))
    first, second = (_front(_argument(node, place, "", place - 1), len(axes)) for place in (1, 2))
    axes[first], axes[second] = axes[second], axes[first]
    return (tuple(axes),)


def swap_matrix(walk: PaddingWalk, node: GraphNode) -> tuple[Axes, ...]:
    return (tuple(reversed(walk.of(node.refs[0]))),)


def unsqueeze(walk: PaddingWalk, node: GraphNode) -> tuple[Axes, ...]:
    axes = walk.of(node.refs[0])
    place = _front(node.arguments[1], len(axes) + 1)
    return ((*axes[:place], None, *axes[place:]),)


def squeeze(walk: PaddingWalk, node: GraphNode) -> tuple[Axes, ...]:
    source = node.refs[0]
    axes, shape = walk.of(source), walk.shape(source)
    gone = _dimensions(_argument(node, 1, "dim"), len(axes))
    return (tuple(axis for place, axis in enumerate(axes) if place not in gone or shape[place] > 1),)


def slice_axis(walk: PaddingWalk, node: GraphNode) -> tuple[Axes, ...]:
    """Return a slice (start and end).

    Of the whole axis, or of a table's first rows, as many as there are entries.
    """
    source = node.refs[0]
    axes = walk.of(source)
    place = _front(_argument(node, 1, "dim", 0), len(axes))
    start, step = _argument(node, 2, "start", 0) or 0, _argument(node, 4, "step", 1)
    if axes[place] is not None:
        if start != 0 or step != 1 or node.shape != walk.shape(source):
            raise Leak("a part of the padded dimension is taken")
        return (axes,)
    _same_numbers(walk, node, (1, 2, 4))
    fresh = walk.fresh_axes(node)[place]
    return ((*axes[:place], fresh, *axes[place + 1 :]),)


def select(walk: PaddingWalk, node: GraphNode) -> tuple[Axes, ...]:
    axes = walk.of(node.refs[0])
    place, index = _front(node.arguments[1], len(axes)), node.arguments[2]
    _same_numbers(walk, node, (1, 2))
    if axes[place] is not None and index != 0:
        raise Leak(f"entry {index} may be padding")
    return ((*axes[:place], *axes[place + 1 :]),)


def split(walk: PaddingWalk, node: GraphNode) -> tuple[Axes, ...]:
    axes = walk.of(node.refs[0])
    place = _front(_argument(node, 2, "dim", 0), len(axes))
    if axes[place] is not None:
        raise Leak("the padded dimension is split")
    return (axes,) * len(node.outputs)


def unbind(walk: PaddingWalk, node: GraphNode) -> tuple[Axes, ...]:
    axes = walk.of(node.refs[0])
    place = _front(_argument(node, 1, "dim", 0), len(axes))
    if axes[place] is not None:
        raise Leak("the padded dimension is taken apart")
    return ((*axes[:place], *axes[place + 1 :]),) * len(node.outputs)


def concatenate(walk: PaddingWalk, node: GraphNode) -> tuple[Axes, ...]:
    place = _front(_argument(node, 1, "dim", 0), len(node.shape))
    every = [walk.of(ref) for ref in node.refs]
    if any(axes[place] is not None for axes in every):
        raise Leak("something is put behind the padding")
    return (broadcast(every, len(node.shape)),)


def stack(walk: PaddingWalk, node: GraphNode) -> tuple[Axes, ...]:
    place = _front(_argument(node, 1, "dim", 0), len(node.shape))
    axes = broadcast([walk.of(ref) for ref in node.refs], len(node.shape) - 1)
    return ((*axes[:place], None, *axes[place:]),)


def embedding(walk: PaddingWalk, node: GraphNode) -> tuple[Axes, ...]:
    table, index = node.refs[:2]
    if any(walk.of(table)):
        raise Leak("a table of padded rows is looked up")
    return ((*walk.of(index), None),)


def index_tensor(walk: PaddingWalk, node: GraphNode) -> tuple[Axes, ...]:
    """Follow padding through an indexing by tensors, ``x[i, j]``.

    Fixed indices of the first dimensions after the untouched ones, none of them padded.
    """
    source = node.refs[0]
    axes, places = walk.of(source), node.arguments[1]
    assert isinstance(places, tuple)
    touched = [place for place, index in enumerate(places) if index is not None]
    padded = any(any(walk.of(places[place])) for place in touched)
    if padded or any(axes[place] for place in touched) or touched != list(range(touched[0], touched[-1] + 1)):
        raise Leak("entries are gathered by index")
    middle = len(node.shape) - (len(axes) - len(touched))
    return ((*axes[: touched[0]], *plain(middle), *axes[touched[-1] + 1 :]),)


def reduction(neutral: float, dims_at: int = 1, keep_at: int = 2, *, mean: bool = False) -> Rule:
    def rule(walk: PaddingWalk, node: GraphNode) -> tuple[Axes, ...]:
        if len(node.refs) > 1:  # the greater of two tensors
            return pointwise(walk, node)
        axes = walk.of(node.refs[0])
        gone = _dimensions(_argument(node, dims_at, "dim"), len(axes))
        walk.mask(node, 0, gone, neutral)
        padded = sum(axes[place] is not None for place in gone)
        if mean and padded:
            walk.means[node.name] = padded
        keep = bool(_argument(node, keep_at, "keepdim", False))
        left = tuple(
            None if place in gone else axis for place, axis in enumerate(axes) if keep or place not in gone
        )
        return (left,) * len(node.outputs)

    return rule


def softmax(walk: PaddingWalk, node: GraphNode) -> tuple[Axes, ...]:
    axes = walk.of(node.refs[0])
    walk.mask(node, 0, {_front(node.arguments[1], len(axes))}, -INFINITY)
    return (axes,)


def running(walk: PaddingWalk, node: GraphNode) -> tuple[Axes, ...]:
    """Return a running sum: what comes after an entry does not reach it."""
    return (walk.of(node.refs[0]),)


def product(first: int, second: int) -> Rule:
    """Return a matrix product of arguments ``first`` and ``second``: over the padded axis both get zeros."""

    def rule(walk: PaddingWalk, node: GraphNode) -> tuple[Axes, ...]:
        left, right = walk.of(node.arguments[first]), walk.of(node.arguments[second])
        inner = (len(left) - 1, max(len(right) - 2, 0))
        if left[inner[0]] is not None or right[inner[1]] is not None:
            walk.mask(node, first, {inner[0]}, 0.0)
            walk.mask(node, second, {inner[1]}, 0.0)
        rows = left[-2:-1] if len(left) > 1 else ()
        columns = right[-1:] if len(right) > 1 else ()
        axes = (*broadcast([left[:-2], right[:-2]], max(len(left), len(right), 2) - 2), *rows, *columns)
        added = [walk.of(node.arguments[0])] if first else []
        return (broadcast([axes, *added], len(node.shape)),)

    return rule


def linear(walk: PaddingWalk, node: GraphNode) -> tuple[Axes, ...]:
    axes = walk.of(node.refs[0])
    if axes[-1] is not None or any(any(walk.of(ref)) for ref in node.refs[1:]):
        raise Leak("weights are applied along the padded dimension")
    return ((*axes[:-1], None),)


def attention(walk: PaddingWalk, node: GraphNode) -> tuple[Axes, ...]:
    """Keys and values in the padding become zeros, and unless it is causal nobody looks at them."""
    query, key, value = (walk.of(argument) for argument in node.arguments[:3])
    if query[-1] is not None or key[-1] is not None or value[-1] is not None:
        raise Leak("the width of a head is padded")
    if _argument(node, 4, "dropout_p", 0.0):
        raise Leak("random numbers are drawn for the padding too")
    axis = key[-2]
    if axis is not None:
        rank = len(key)
        walk.mask(node, 1, {rank - 2}, 0.0)
        walk.mask(node, 2, {rank - 2}, 0.0)
        causal = bool(_argument(node, 5, "is_causal", False))
        if not (causal and query[-2] == axis):
            walk.keys[node.name] = axis
    return (broadcast([query, (*key[:-2], None, None), (*value[:-2], None, None)], len(node.shape)),)


def normalized_last(walk: PaddingWalk, node: GraphNode) -> tuple[Axes, ...]:
    axes = walk.of(node.refs[0])
    sizes = node.arguments[1]
    assert isinstance(sizes, tuple)
    if any(axes[len(axes) - len(sizes) :]):
        raise Leak("the padded dimension is normalized")
    return (axes, *(plain(len(out.shape)) for out in node.outputs[1:] if out is not None))


def per_sample(walk: PaddingWalk, node: GraphNode) -> tuple[Axes, ...]:
    """Convolutions, poolings, group normalizations: samples stay apart, neighbors within one do not."""
    axes = walk.of(node.refs[0])
    if any(axes[1:]) or any(any(walk.of(ref)) for ref in node.refs[1:]):
        raise Leak("neighbors along the padded dimension are mixed")
    return tuple((axes[0], *plain(len(out.shape) - 1)) if out is not None else () for out in node.outputs)


def batch_norm(training_at: int | None) -> Rule:
    def rule(walk: PaddingWalk, node: GraphNode) -> tuple[Axes, ...]:
        axes = walk.of(node.refs[0])
        if len(axes) > 1 and axes[1] is not None:
            raise Leak("the channels are padded")
        if training_at is not None and node.arguments[training_at] and any(axes):
            walk.statistics[node.name] = axes
        return (axes, *(plain(0 if out is None else len(out.shape)) for out in node.outputs[1:]))

    return rule


_POINTWISE = """
            abs acos acosh add addcdiv addcmul alias asin asinh atan atan2 atanh bitwise_and bitwise_not
    bitwise_or     bitwise_xor ceil celu clamp clamp_max clamp_min clone contiguous cos cosh detach div elu eq
    erf     erfc exp exp2 expm1 floor floor_divide fmod ge gelu gt hardsigmoid hardswish hardtanh isfinite
    isinf isnan     le leaky_relu lerp lift_fresh_copy log log10 log1p log2 logical_and logical_not logical_or
    logical_xor lt     masked_fill maximum minimum mish mul ne neg ones_like full_like zeros_like pow
    reciprocal relu relu6 remainder round     rsqrt rsub selu sigmoid sign silu sin sinh softplus sqrt square
    sub tan tanh threshold to tril triu trunc where     xlogy _to_copy type_as nan_to_num
"""
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_POINTWISE.split(), pointwise),
    **dict.fromkeys(("arange", "full", "zeros", "ones", "scalar_tensor", "empty", "eye"), creation),
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "flatten", "unflatten"), view),
    **{"expand": expand, "permute": permute, "transpose": transpose, "t": swap_matrix, "slice": slice_axis},
    **{"unsqueeze": unsqueeze, "squeeze": squeeze, "select": select, "unbind": unbind, "cat": concatenate},
    **{"split": split, "split_with_sizes": split, "chunk": split, "stack": stack},
    **{"embedding": embedding, "index": index_tensor, "cumsum": running},
    **{"sum": reduction(0.0), "mean": reduction(0.0, mean=True), "logsumexp": reduction(-INFINITY)},
    **{"amax": reduction(-INFINITY), "max": reduction(-INFINITY), "argmax": reduction(-INFINITY)},
    **{"amin": reduction(INFINITY), "min": reduction(INFINITY), "argmin": reduction(INFINITY)},
    **{"prod": reduction(1.0), "any": reduction(0.0), "all": reduction(1.0)},
    **dict.fromkeys(("softmax", "_softmax", "log_softmax", "_log_softmax"), softmax),
    **{"mm": product(0, 1), "bmm": product(0, 1), "matmul": product(0, 1)},
    **{"addmm": product(1, 2), "baddbmm": product(1, 2), "linear": linear},
    **{"scaled_dot_product_attention": attention},
    **dict.fromkeys(("layer_norm", "native_layer_norm", "rms_norm"), normalized_last),
    **dict.fromkeys(
        ("conv1d", "conv2d", "conv3d", "convolution", "max_pool2d", "max_pool2d_with_indices"), per_sample
    ),
    **dict.fromkeys(
        ("avg_pool2d", "adaptive_avg_pool2d", "group_norm", "native_group_norm", "max_pool1d"), per_sample
    ),
    "_native_batch_norm_legit_no_training": batch_norm(None),
    "_native_batch_norm_legit_functional": batch_norm(5),
    "batch_norm": batch_norm(5),
}
