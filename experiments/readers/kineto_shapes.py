"""Shapes and types of an op's arguments as the profiler records them, and the FLOPs that follow from shapes
alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: C++ type names in ``Input type``; bytes of one element.
TYPES = {
    "float": ("float32", 4),
    "double": ("float64", 8),
    "c10::Half": ("float16", 2),
    "c10::BFloat16": ("bfloat16", 2),
    "c10::Float8_e4m3fn": ("float8_e4m3fn", 1),
    "c10::Float8_e5m2": ("float8_e5m2", 1),
    "long": ("int64", 8),
    "long int": ("int64", 8),
    "int": ("int32", 4),
    "short": ("int16", 2),
    "short int": ("int16", 2),
    "signed char": ("int8", 1),
    "unsigned char": ("uint8", 1),
    "bool": ("bool", 1),
    "c10::complex<float>": ("complex64", 8),
    "c10::complex<double>": ("complex128", 16),
}
MOST_ELEMENTS = 2**50


@dataclass(frozen=True)
class Argument:
    """A tensor argument: its position (those of a list share one), shape and type.

    ``extent`` elements lie from its first to its last in memory: more than it has for a slice, fewer for an
    expanded tensor.
    """

    position: int
    shape: tuple[int, ...]
    dtype: str
    item: int
    extent: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Of the memory that it lies in, as far as it shows."""
        return self.extent * self.item

    @property
    def dense(self) -> bool:
        return self.extent == self.elements


def arguments(args: Mapping[str, Any]) -> tuple[Argument, ...]:
    """The tensors among an op's arguments; empty where shapes were not recorded.

    Lists of tensors have no types: they are taken to be of the first tensor's type, or float.
    """
    dims, types = args.get("Input Dims"), args.get("Input type", args.get("Input Types"))
    if not isinstance(dims, list) or not isinstance(types, list) or len(dims) != len(types):
        return ()
    strides = args.get("Input Strides")
    if not isinstance(strides, list) or len(strides) != len(dims):
        strides = [None] * len(dims)
    known = next((TYPES[kind] for kind in types if isinstance(kind, str) and kind in TYPES), TYPES["float"])
    found: list[Argument] = []
    for position, (shape, kind, steps) in enumerate(zip(dims, types, strides, strict=True)):
        if isinstance(kind, str) and kind in TYPES and _is_shape(shape):
            found.append(Argument(position, tuple(shape), *TYPES[kind], _extent(shape, steps)))
        elif kind == "TensorList" and isinstance(shape, list):
            found += [
                Argument(position, tuple(each), *known, math.prod(each)) for each in shape if _is_shape(each)
            ]
    return tuple(found)


def _extent(shape: Sequence[int], strides: Any) -> int:
    """Elements from the first to the last; as many as there are where the strides were not recorded."""
    count = math.prod(shape)
    if not _are_sizes(strides) or len(strides) != len(shape) or not count:
        return count
    reach = sum((size - 1) * int(step) for size, step in zip(shape, strides, strict=True))
    return min(1 + reach, MOST_ELEMENTS)


def _is_shape(value: Any) -> bool:
    return _are_sizes(value) and math.prod(value) <= MOST_ELEMENTS


def _are_sizes(value: Any) -> bool:
    if not isinstance(value, list) or len(value) > 64:
        return False
    return all(
        isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= MOST_ELEMENTS for size in value
    )


def _product(values: Sequence[Argument], left: int, right: int) -> float:
    """Two FLOPs for each multiply-add of [..., m, k] x [..., k, n]."""
    by_position = {value.position: value.shape for value in values}
    a, b = by_position.get(left, ()), by_position.get(right, ())
    return 2.0 * math.prod(a) * b[-1] if len(a) >= 2 and len(b) >= 2 else math.nan


def _convolution(values: Sequence[Argument], output: int) -> float:
    """2 x (elements written) x (weight elements of one output channel); unknown without memory events."""
    weight = next((value.shape for value in values if value.position == 1), ())
    if output <= 0 or len(weight) < 3:
        return math.nan
    return 2.0 * output * math.prod(weight[1:])


def _convolution_backward(values: Sequence[Argument], args: Mapping[str, Any]) -> float:
    """One convolution's worth for the weight's gradient, one more for the input's where it is asked for."""
    shapes = {value.position: value for value in values}
    if not {0, 1, 2} <= set(shapes) or len(shapes[2].shape) < 3:
        return math.nan
    once = 2.0 * shapes[0].elements * math.prod(shapes[2].shape[1:])
    concrete = args.get("Concrete Inputs")
    mask = str(concrete[10]) if isinstance(concrete, list) and len(concrete) > 10 else "[True, True]"
    return once * sum(word.strip() == "True" for word in mask.strip("[]").split(",")[:2])


def _attention(values: Sequence[Argument], first: int, products: tuple[int, int]) -> float:
    """``products``: how many of query x key and of weights x value; [batch, heads, tokens, size] each."""
    shapes = {value.position: value.shape for value in values}
    query, key, value = (shapes.get(first + i, ()) for i in range(3))
    if not len(query) == len(key) == len(value) == 4:
        return math.nan
    pairs = 2.0 * query[0] * query[1] * query[2] * key[2]
    return pairs * (products[0] * query[3] + products[1] * value[3])


def flops(name: str, values: Sequence[Argument], args: Mapping[str, Any], written: int) -> float:
    """FLOPs of products, convolutions and attention, 0 for everything else.

    They are counted as ``profiling.cost`` does; NaN where shapes were not recorded. ``written`` is the number
    of elements that the op allocates.
    """
    if "Input Dims" not in args:
        return math.nan
    if "_scaled_dot_product" in name:
        return _attention(values, 1, (3, 2)) if "backward" in name else _attention(values, 0, (1, 1))
    if name in ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm"):
        first = 1 if "add" in name else 0
        return _product(values, first, first + 1)
    if name == "aten::convolution_backward":
        return _convolution_backward(values, args)
    if "convolution" in name or "conv_depthwise" in name:
        return _convolution(values, written)
    return 0.0
