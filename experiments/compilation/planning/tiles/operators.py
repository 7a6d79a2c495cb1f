"""The usual operators as tensor expressions, built from their sizes."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from dataclasses import replace

from experiments.compilation.interface.expressions import Expression, Index, LoopAxis, Sizes, TensorAccess

#: A softmax row: subtract the maximum, exponentiate, add up, divide; with the maximum five operations a
#: point.
SOFTMAX_FLOPS = 5.0
#: A normalized row: mean, variance, subtract, scale, and the affine map.
NORMALIzATION_FLOPS = 8.0


def with_bias(expression: Expression, dimension: int) -> Expression:
    """Return ``expression`` reading one more tensor along ``dimension`` of its output, once a result."""
    index = expression.output.indices[dimension]
    return replace(
        expression, inputs=(*expression.inputs, TensorAccess("bias", (index,), expression.output.dtype))
    )


def _plain(extents: Sequence[int], names: Sequence[str]) -> tuple[Index, ...]:
    return tuple(Index(extent, ((name, 1),)) for extent, name in zip(extents, names, strict=True))


def matmul(
    m: int,
    n: int,
    k: int,
    dtype: str = "float32",
    *,
    batch: Sequence[int] = (),
    transposed: bool = False,
    name: str = "matmul",
) -> Expression:
    """Return ``C[b.., m, n] = sum over k of A[b.., m, k] * B[b.., k, n]``.

    ``transposed``: B lies as ``[b.., n, k]``.
    """
    lead = tuple(LoopAxis(f"b{i}", extent) for i, extent in enumerate(batch))
    indices = _plain([axis.extent for axis in lead], [axis.name for axis in lead])
    rows, columns, depth = Index(m, (("m", 1),)), Index(n, (("n", 1),)), Index(k, (("k", 1),))
    return Expression(
        name,
        "batch_matmul" if batch else "matmul",
        (*lead, LoopAxis("m", m), LoopAxis("n", n)),
        (LoopAxis("k", k),),
        (
            TensorAccess("a", (*indices, rows, depth), dtype),
            TensorAccess("b", (*indices, *((columns, depth) if transposed else (depth, columns))), dtype),
        ),
        TensorAccess("c", (*indices, rows, columns), dtype),
        flops=2.0,
    )


def linear(
    lead: Sequence[int], inputs: int, outputs: int, dtype: str = "float32", *, name: str = "linear"
) -> Expression:
    """Return ``y[.., n] = sum over k of x[.., k] * w[n, k]``.

    A layer's weight lies with its inputs contiguous.
    """
    names = [f"m{i}" for i in range(len(lead))]
    columns, depth = Index(outputs, (("n", 1),)), Index(inputs, (("k", 1),))
    rows = _plain(lead, names)
    return Expression(
        name,
        "linear",
        (*(LoopAxis(axis, extent) for axis, extent in zip(names, lead, strict=True)), LoopAxis("n", outputs)),
        (LoopAxis("k", inputs),),
        (TensorAccess("x", (*rows, depth), dtype), TensorAccess("w", (columns, depth), dtype)),
        TensorAccess("y", (*rows, columns), dtype),
        flops=2.0,
    )


def windows(
    size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Sizes:
    """Output sizes of a sliding window."""
    return tuple(
        (length + 2 * pad - spread * (width - 1) - 1) // step + 1
        for length, width, step, pad, spread in zip(size, kernel, stride, padding, dilation, strict=True)
    )


def _slide(
    size: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[tuple[Index, ...], list[str], list[str]]:
    """Input indices of a window (stride x output + dilation x kernel), and the names of both
    kinds of axes.
    """
    letters = "dhw"[3 - len(size) :] if len(size) <= 3 else string.ascii_lowercase[: len(size)]
    outputs, kernels = [f"o{letter}" for letter in letters], [f"k{letter}" for letter in letters]
    indices = tuple(
        Index(length, ((out, step), (kernel, spread)))
        for length, out, kernel, step, spread in zip(size, outputs, kernels, stride, dilation, strict=True)
    )
    return indices, outputs, kernels


def convolution(
    batch: int,
    channels: int,
    size: Sequence[int],
    filters: int,
    kernel: Sequence[int],
    *,
    stride: Sequence[int] | None = None,
    padding: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    groups: int = 1,
    dtype: str = "float32",
    name: str = "convolution",
) -> Expression:
    """Return a convolution over one to three dimensions, strided, dilated and grouped; NCHW.

    Depthwise: groups = channels.
    """
    ones = (1,) * len(size)
    stride, dilation, padding = stride or ones, dilation or ones, padding or (0,) * len(size)
    out = windows(size, kernel, stride, padding, dilation)
    padded = [length + 2 * pad for length, pad in zip(size, padding, strict=True)]
    slides, outputs, kernels = _slide(padded, stride, dilation)
    each, deep = filters // groups, channels // groups
    grouped = groups > 1
    group = (LoopAxis("g", groups),) if grouped else ()
    filter_axis = () if grouped and each == 1 else (LoopAxis("f", each),)
    depth_axis = () if deep == 1 else (LoopAxis("c", deep),)
    in_terms = (*((("g", deep),) if grouped else ()), *((("c", 1),) if depth_axis else ()))
    out_terms = (*((("g", each),) if grouped else ()), *((("f", 1),) if filter_axis else ()))
    taps = _plain(kernel, kernels)
    return Expression(
        name,
        "depthwise" if grouped and deep == 1 else "convolution",
        (
            LoopAxis("n", batch),
            *group,
            *filter_axis,
            *(LoopAxis(axis, extent) for axis, extent in zip(outputs, out, strict=True)),
        ),
        (*depth_axis, *(LoopAxis(axis, extent) for axis, extent in zip(kernels, kernel, strict=True))),
        (
            TensorAccess("x", (Index(batch, (("n", 1),)), Index(channels, in_terms), *slides), dtype),
            TensorAccess("w", (Index(filters, out_terms), Index(deep, in_terms[grouped:]), *taps), dtype),
        ),
        TensorAccess(
            "y", (Index(batch, (("n", 1),)), Index(filters, out_terms), *_plain(out, outputs)), dtype
        ),
        flops=2.0,
    )


def implicit_gemm(convolved: Expression) -> Expression:
    """Return an ungrouped convolution as the product of its filters and its windows.

    The windows are a matrix, output pixels fused.

    Roller tiles convolutions so (``f x pixels``, reduction over channels and taps). An element of the image
    stands in that matrix once for each window that covers it, which caches and shared memory serve.
    """
    batch, filters, *out = convolved.domain
    pixels, depth = batch * math.prod(out), math.prod(convolved.reduction)
    image, weights, *bias = convolved.inputs
    repeats = max(1.0, pixels * depth / math.prod(image.shape))
    columns, rows, reduced = (
        Index(pixels, (("p", 1),)),
        Index(filters, (("f", 1),)),
        Index(depth, (("k", 1),)),
    )
    return Expression(
        convolved.name,
        convolved.kind,
        (LoopAxis("f", filters), LoopAxis("p", pixels)),
        (LoopAxis("k", depth),),
        (
            TensorAccess("w", (rows, reduced), weights.dtype),
            TensorAccess("x", (reduced, columns), image.dtype, repeats),
            *(TensorAccess("bias", (rows,), access.dtype) for access in bias),
        ),
        TensorAccess("y", (rows, columns), convolved.output.dtype),
        flops=convolved.flops,
    )


def pooling(
    batch: int,
    channels: int,
    size: Sequence[int],
    kernel: Sequence[int],
    *,
    stride: Sequence[int] | None = None,
    padding: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    dtype: str = "float32",
    name: str = "pooling",
) -> Expression:
    """Return a maximum or mean over windows; one operation a tap."""
    ones = (1,) * len(size)
    stride, dilation, padding = stride or tuple(kernel), dilation or ones, padding or (0,) * len(size)
    out = windows(size, kernel, stride, padding, dilation)
    padded = [length + 2 * pad for length, pad in zip(size, padding, strict=True)]
    slides, outputs, kernels = _slide(padded, stride, dilation)
    planes = _plain((batch, channels), ("n", "c"))
    return Expression(
        name,
        "pooling",
        (
            LoopAxis("n", batch),
            LoopAxis("c", channels),
            *(LoopAxis(a, extent) for a, extent in zip(outputs, out, strict=True)),
        ),
        tuple(LoopAxis(a, extent) for a, extent in zip(kernels, kernel, strict=True)),
        (TensorAccess("x", (*planes, *slides), dtype),),
        TensorAccess("y", (*planes, *_plain(out, outputs)), dtype),
        flops=1.0,
    )


def elementwise(
    shape: Sequence[int],
    operands: Sequence[Sequence[int]] = (),
    dtype: str = "float32",
    *,
    flops: float = 1.0,
    name: str = "elementwise",
) -> Expression:
    """One output point from one point of every operand.

    Operands broadcast by numpy's rule (default: one, as large).
    """
    names = [f"i{i}" for i in range(len(shape))]

    def access(tensor: str, own: Sequence[int]) -> TensorAccess:
        lead = len(shape) - len(own)
        return TensorAccess(
            tensor,
            tuple(
                Index(extent, ((axis, 1),) if extent > 1 or whole == 1 else ())
                for extent, whole, axis in zip(own, shape[lead:], names[lead:], strict=True)
            ),
            dtype,
        )

    read = operands or (shape,)
    return Expression(
        name,
        "elementwise",
        tuple(LoopAxis(axis, extent) for axis, extent in zip(names, shape, strict=True)),
        (),
        tuple(access(f"x{i}", own) for i, own in enumerate(read)),
        access("y", shape),
        flops=flops,
    )


def reduction(
    shape: Sequence[int],
    over: Sequence[int],
    dtype: str = "float32",
    *,
    keep: bool = False,
    name: str = "reduction",
) -> Expression:
    """Return a sum, mean or maximum over the dimensions ``over``.

    ``keep``: they stay in the result with one element.
    """
    names = [f"i{i}" for i in range(len(shape))]
    axes = [LoopAxis(axis, extent) for axis, extent in zip(names, shape, strict=True)]
    kept = [i for i in range(len(shape)) if i not in over]
    return Expression(
        name,
        "reduction",
        tuple(axes[i] for i in kept),
        tuple(axes[i] for i in sorted(over)),
        (TensorAccess("x", _plain(shape, names), dtype),),
        TensorAccess(
            "y",
            tuple(
                Index(1) if i in over else Index(shape[i], ((names[i], 1),))
                for i in range(len(shape))
                if keep or i not in over
            ),
            dtype,
        ),
        flops=1.0,
    )


def rowwise(
    shape: Sequence[int],
    over: Sequence[int],
    dtype: str = "float32",
    *,
    flops: float = SOFTMAX_FLOPS,
    parameters: int = 0,
    name: str = "softmax",
) -> Expression:
    """Return the expression of a softmax or a normalization.

    Whole rows along ``over`` in, whole rows out, ``parameters`` vectors over the rows.
    """
    names = [f"i{i}" for i in range(len(shape))]
    axes = [LoopAxis(axis, extent) for axis, extent in zip(names, shape, strict=True)]
    row = _plain([shape[i] for i in sorted(over)], [names[i] for i in sorted(over)])
    return Expression(
        name,
        "rowwise",
        tuple(axes[i] for i in range(len(shape)) if i not in over),
        tuple(axes[i] for i in sorted(over)),
        (
            TensorAccess("x", _plain(shape, names), dtype),
            *(TensorAccess(f"p{i}", row, dtype) for i in range(parameters)),
        ),
        TensorAccess("y", _plain(shape, names), dtype),
        flops=flops,
    )


def transpose(shape: Sequence[int], order: Sequence[int], dtype: str = "float32") -> Expression:
    """Return a copy with dimensions in another ``order``: output dimension i is the input's ``order[i]``."""
    names = [f"i{i}" for i in range(len(shape))]
    moved = [shape[i] for i in order]
    inverse = {source: names[i] for i, source in enumerate(order)}
    return Expression(
        "transpose",
        "elementwise",
        tuple(LoopAxis(axis, extent) for axis, extent in zip(names, moved, strict=True)),
        (),
        (TensorAccess("x", _plain(shape, [inverse[i] for i in range(len(shape))]), dtype),),
        TensorAccess("y", _plain(moved, names), dtype),
        flops=0.0,
    )
