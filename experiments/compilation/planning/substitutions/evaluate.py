"""What the operators of the algebra compute, in exact integers (int64), with what a split needs to know.

A tensor carries, for each axis, where concatenations joined it, the newest last (TASO, section 4: split
metadata). A concatenation appends its inputs' joins and its own; an operator that keeps an axis keeps its
joins; an elementwise one keeps those that both sides have. ``split`` cuts at the newest join of its axis;
without one it is undefined. ``pool2d_avg`` is the plain sum of a window: integers stay integers, and every
rule is linear in that constant factor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from experiments.compilation.planning.substitutions.canonical import EXPLICIT, SAME
from experiments.compilation.planning.substitutions.dims import IllTyped
from experiments.workloads.substitutions import Operand, Operator

Integers = npt.NDArray[np.int64]
#: Joins of each axis, the newest last.
Joins = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class JoinedTensor:
    """An integer tensor and where each axis was joined."""

    array: Integers
    joins: Joins

    @staticmethod
    def of(array: Integers) -> JoinedTensor:
        return JoinedTensor(array, ((),) * array.ndim)


def evaluate(
    side: Sequence[Operator], variables: Mapping[Operand, JoinedTensor]
) -> dict[Operand, JoinedTensor]:
    """Return every tensor of one side of a rule; ``IllTyped`` names an operator that refuses its inputs."""
    found = dict(variables)
    for index, operator in enumerate(side):
        for output, value in enumerate(apply(operator, [found[operand] for operand in operator.inputs])):
            found[Operand(index, output)] = value
    return found


def apply(operator: Operator, inputs: Sequence[JoinedTensor]) -> list[JoinedTensor]:
    kind, x = operator.kind, inputs[0]
    if kind == "relu":
        return [JoinedTensor(np.maximum(x.array, 0), x.joins)]
    if kind in ("ew_add", "ew_mul"):
        return [_elementwise(kind, x, inputs[1])]
    if kind == "matmul":
        return [_matmul(x, inputs[1])]
    if kind == "transpose":
        return [JoinedTensor(np.swapaxes(x.array, -1, -2), (*x.joins[:-2], x.joins[-1], x.joins[-2]))]
    if kind == "concat":
        return [_concat(x, inputs[1], operator.parameter("axis"))]
    if kind == "split":
        return _split(x, operator.parameter("axis"))
    if kind == "conv2d":
        return [_convolution(operator, x, inputs[1])]
    if kind.startswith("pool2d"):
        return [_pool(operator, x)]
    return [_enlarge(operator, x)]


def common_joins(x: Joins, y: Joins) -> Joins:
    return tuple(a if a == b else () for a, b in zip(x, y, strict=True))


def _elementwise(kind: str, x: JoinedTensor, y: JoinedTensor) -> JoinedTensor:
    if x.array.shape != y.array.shape:
        raise IllTyped(kind, f"{x.array.shape} and {y.array.shape}")
    result = x.array + y.array if kind == "ew_add" else x.array * y.array
    return JoinedTensor(result, common_joins(x.joins, y.joins))


def _matmul(x: JoinedTensor, y: JoinedTensor) -> JoinedTensor:
    a, b = x.array, y.array
    batched = b.ndim > 2 and a.shape[:-2] == b.shape[:-2]
    if a.ndim < 2 or not (b.ndim == 2 or batched) or a.shape[-1] != b.shape[-2]:
        raise IllTyped("matmul", f"{a.shape} and {b.shape}")
    return JoinedTensor(a @ b, (*x.joins[:-1], y.joins[-1]))


def _concat(x: JoinedTensor, y: JoinedTensor, axis: int) -> JoinedTensor:
    a, b = x.array, y.array
    if (
        a.ndim != b.ndim
        or a.ndim < -axis
        or any(m != n for i, (m, n) in enumerate(zip(a.shape, b.shape, strict=True)) if i != a.ndim + axis)
    ):
        raise IllTyped("concat", f"{a.shape} and {b.shape}, axis {axis}")
    return JoinedTensor(np.concatenate([a, b], axis), concat_joins(x.joins, y.joins, axis, a.shape[axis]))


def concat_joins(x: Joins, y: Joins, axis: int, offset: int) -> Joins:
    """Return ``offset`` is the size of the first along ``axis``."""
    joins = list(common_joins(x, y))
    joins[axis] = (*x[axis], *(offset + join for join in y[axis]), offset)
    return tuple(joins)


def _split(x: JoinedTensor, axis: int) -> list[JoinedTensor]:
    if x.array.ndim < -axis or not x.joins[axis]:
        raise IllTyped("split", f"nothing was joined along axis {axis} of {x.array.shape}")
    *rest, cut = x.joins[axis]
    first = [join for join in rest if join < cut]
    second = [join - cut for join in rest if join > cut]
    parts = np.split(x.array, [cut], axis)
    place = x.array.ndim + axis
    return [
        JoinedTensor(part, (*x.joins[:place], tuple(joins), *x.joins[place + 1 :]))
        for part, joins in zip(parts, (first, second), strict=True)
    ]


def _convolution(operator: Operator, x: JoinedTensor, w: JoinedTensor) -> JoinedTensor:
    a, f = x.array, w.array
    if a.ndim != 4 or f.ndim != 4 or f.shape[1] == 0 or a.shape[1] % f.shape[1]:
        raise IllTyped("conv2d", f"{a.shape} and filters {f.shape}")
    groups = a.shape[1] // f.shape[1]
    kernel = (operator.parameter("kernel_h"), operator.parameter("kernel_w"))
    if f.shape[0] % groups or f.shape[2:] != kernel:
        raise IllTyped("conv2d", f"{groups} groups, filters {f.shape}, kernel {kernel}")
    seen = windows(operator, a, kernel)
    n, _, h, v = seen.shape[:4]
    seen = seen.reshape(n, groups, f.shape[1], h, v, *kernel)
    filters = f.reshape(groups, f.shape[0] // groups, *f.shape[1:])
    result = np.einsum("ngchvij,gocij->ngohv", seen, filters, optimize=True).reshape(n, f.shape[0], h, v)
    return JoinedTensor(np.asarray(result), (x.joins[0], w.joins[0], *_joins_of_places(operator, x)))


def _joins_of_places(operator: Operator, x: JoinedTensor) -> Joins:
    """Return joins of height and width: kept where positions are."""
    kept = operator.parameter("pad") == SAME
    return tuple(
        x.joins[axis] if kept and operator.parameter(f"stride_{side}") == 1 else ()
        for side, axis in (("h", 2), ("w", 3))
    )


def windows(operator: Operator, a: Integers, kernel: tuple[int, int]) -> Integers:
    """(batch, channel, row, column, kernel row, kernel column), zero outside.

    SAME pads as TASO (more at the end).
    """
    strides = (operator.parameter("stride_h"), operator.parameter("stride_w"))
    pad = operator.parameter("pad")
    padding = [(0, 0), (0, 0)]
    for size, k, stride in zip(a.shape[2:], kernel, strides, strict=True):
        missing = 2 * max(pad - EXPLICIT, 0)
        if pad == SAME:
            missing = max((-(-size // stride) - 1) * stride + k - size, 0)
        padding.append((missing // 2, missing - missing // 2))
        if size + missing < k:
            raise IllTyped(operator.kind, f"{a.shape} is smaller than the kernel {kernel}")
    seen = np.lib.stride_tricks.sliding_window_view(np.pad(a, padding), kernel, (2, 3))
    return np.asarray(seen[:, :, :: strides[0], :: strides[1]])


def _pool(operator: Operator, x: JoinedTensor) -> JoinedTensor:
    kernel = (operator.parameter("kernel_h"), operator.parameter("kernel_w"))
    if operator.kind == "pool2d_avg":
        result = windows(operator, x.array, kernel).sum((4, 5))
    else:
        lowest = int(x.array.min()) - 1
        result = windows(operator, x.array - lowest, kernel).max((4, 5)) + lowest
    return JoinedTensor(result, (x.joins[0], x.joins[1], *_joins_of_places(operator, x)))


def _enlarge(operator: Operator, w: JoinedTensor) -> JoinedTensor:
    """Filters padded with zeros to a larger odd kernel."""
    kernel = (operator.parameter("kernel_h"), operator.parameter("kernel_w"))
    around = [(0, 0), (0, 0)]
    for size, wanted in zip(w.array.shape[2:], kernel, strict=True):
        if size > wanted or (wanted - size) % 2:
            raise IllTyped("enlarge", f"filters {w.array.shape} to {kernel}")
        around.append(((wanted - size) // 2,) * 2)
    return JoinedTensor(np.pad(w.array, around), (w.joins[0], w.joins[1], (), ()))
