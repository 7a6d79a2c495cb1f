"""Operators of a list as tensor expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from experiments.compilation.interface.expressions import Expression
from experiments.compilation.planning.tiles import operators
from experiments.workloads.operator_list import Operator


def _matmul(of: Operator) -> Expression:
    batch = of.sizes.get("batch", ())
    return operators.matmul(of.one("m"), of.one("n"), of.one("k"), of.dtype, batch=batch, name=of.name)


def _convolution(of: Operator) -> Expression:
    batch, channels, *image = of.sizes["x"]
    return operators.convolution(
        batch,
        channels,
        image,
        of.one("filters"),
        of.sizes["kernel"],
        stride=of.sizes.get("stride"),
        padding=of.sizes.get("padding"),
        dilation=of.sizes.get("dilation"),
        groups=of.one("groups"),
        dtype=of.dtype,
        name=of.name,
    )


def _pooling(of: Operator) -> Expression:
    batch, channels, *image = of.sizes["x"]
    return operators.pooling(
        batch,
        channels,
        image,
        of.sizes["kernel"],
        stride=of.sizes.get("stride"),
        padding=of.sizes.get("padding"),
        dilation=of.sizes.get("dilation"),
        dtype=of.dtype,
        name=of.name,
    )


def _elementwise(of: Operator) -> Expression:
    shape = of.sizes["shape"]
    return operators.elementwise(shape, (shape,) * of.one("operands"), of.dtype, name=of.name)


def _reduction(of: Operator) -> Expression:
    return operators.reduction(of.sizes["shape"], of.sizes["over"], of.dtype, name=of.name)


def _softmax(of: Operator) -> Expression:
    return operators.rowwise(of.sizes["shape"], of.sizes["over"], of.dtype, name=of.name)


BUILDERS: Mapping[str, Callable[[Operator], Expression]] = {
    "matmul": _matmul,
    "conv": _convolution,
    "pool": _pooling,
    "elementwise": _elementwise,
    "reduce": _reduction,
    "softmax": _softmax,
}


def expression(operator: Operator) -> Expression:
    """Return the tensor expression of one operator of a list."""
    return BUILDERS[operator.kind](operator)
