"""Activations in 8 bits on graph records: what a product reads is rounded to codes in every call.

``dynamic``: each token (row of the last axis; each sample of an image) has its own scale, found at run time,
and no zero point. ``static``: one scale and zero point for all, from calibration
(``calibration.ClippingRange``). Where the weight too is a symmetric byte with one scale a channel, the
product is one of integers with 32-bit sums: ``y = s_a s_w (sum q_a q_w - z_a sum q_w) + b``; otherwise codes
are turned back before they are multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.compilation.interface import Argument, Draft, Ref, Symbol
from experiments.compilation.planning.numerics.calibration import ClippingRange
from experiments.compilation.policies.quantize.stored import StoredWeight, unpack

HIGHEST = 127
#: What integer products ask for on a GPU; kept everywhere, so that a plan does not depend on the host.
LEAST_ROWS, MULTIPLE = 17, 8


@dataclass(frozen=True)
class Codes:
    """``codes`` are whole numbers in the activation's own type.

    ``scale`` a node or number, ``zero`` a number.
    """

    codes: Ref
    scale: Ref | float
    zero: int = 0


def dynamic(draft: Draft, x: Ref, axes: tuple[int, ...]) -> Codes:
    """One scale over ``axes``, found at run time: ``max|x| / 127``, 1 where all is zero."""
    largest = draft.op("aten.amax.default", draft.op("aten.abs.default", x), axes, True)
    scale = draft.op("aten.div.Scalar", largest, HIGHEST)
    scale = draft.op("aten.where.ScalarOther", draft.op("aten.gt.Scalar", scale, 0), scale, 1.0)
    rounded = draft.op("aten.round.default", draft.op("aten.div.Tensor", x, scale))
    return Codes(draft.op("aten.clamp.default", rounded, -HIGHEST, HIGHEST), scale)


def static(draft: Draft, x: Ref, seen: ClippingRange, symmetric: bool) -> Codes:
    """Return the scale and zero point of what was seen; values beyond are clipped."""
    scale, zero = seen.scale(8, symmetric)
    rounded = draft.op("aten.round.default", draft.op("aten.div.Scalar", x, scale))
    if zero:
        rounded = draft.op("aten.add.Scalar", rounded, zero)
    lowest = -HIGHEST - (not symmetric)
    return Codes(draft.op("aten.clamp.default", rounded, lowest, HIGHEST), scale, zero)


def back(draft: Draft, codes: Codes) -> Ref:
    """Return what the codes stand for."""
    found = draft.op("aten.sub.Scalar", codes.codes, codes.zero) if codes.zero else codes.codes
    return _scale(draft, found, codes.scale)


def _scale(draft: Draft, x: Ref, scale: Ref | float) -> Ref:
    return draft.op("aten.mul.Tensor" if isinstance(scale, Ref) else "aten.mul.Scalar", x, scale)


def integer_product_fits(draft: Draft, x: Ref, stored: StoredWeight) -> bool:
    """Return whether ``integer_linear`` may stand for the product."""
    shape, scheme = draft.type(x).shape, stored.scheme
    rows = draft.type(x).elements // shape[-1]
    sizes = rows >= LEAST_ROWS and shape[-1] % MULTIPLE == 0 and stored.shape[0] % MULTIPLE == 0
    return bool(
        sizes and scheme.symmetric and scheme.granularity != "group" and draft.type(x).dtype == "float32"
    )


def integer_linear(draft: Draft, codes: Codes, stored: StoredWeight, bias: Argument) -> Ref:
    """Return a linear layer on integer codes."""
    shape = draft.type(codes.codes).shape
    flat = draft.op("aten.reshape.default", codes.codes, (-1, shape[-1]))
    weight = unpack(draft, stored.codes, stored)
    bytes_ = draft.op("aten._to_copy.default", flat, dtype=Symbol("dtype", "int8"))
    sums = draft.op("aten._int_mm.default", bytes_, draft.op("aten.t.default", weight))
    if codes.zero:
        whole = draft.op("aten._to_copy.default", stored.codes, dtype=Symbol("dtype", "int32"), once=True)
        each = draft.op("aten.sum.dim_IntList", whole, (1,), once=True)
        beside = draft.op("aten.mul.Scalar", each, codes.zero, once=True)
        beside = draft.op("aten._to_copy.default", beside, dtype=Symbol("dtype", "int32"), once=True)
        sums = draft.op("aten.sub.Tensor", sums, beside)
    found = draft.op("aten._to_copy.default", sums, dtype=Symbol("dtype", "float32"))
    found = _scale(draft, found, _by_row(draft, codes.scale))
    scales = draft.op("aten._to_copy.default", stored.scales, dtype=Symbol("dtype", "float32"), once=True)
    by_channel = draft.op("aten.reshape.default", scales, (1, -1), once=True)
    found = draft.op("aten.mul.Tensor", found, by_channel)
    if bias is not None:
        found = draft.op("aten.add.Tensor", found, bias)
    return draft.op("aten.reshape.default", found, (*shape[:-1], stored.shape[0]))


def _by_row(draft: Draft, scale: Ref | float) -> Ref | float:
    return draft.op("aten.reshape.default", scale, (-1, 1)) if isinstance(scale, Ref) else scale
