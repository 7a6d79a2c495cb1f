"""The device code.

Arithmetic is float32 whatever the tensors hold: values are cast right after they are loaded.

That is for accuracy on a GPU; under the interpreter it is for correctness, as bfloat16 lies there in 16-bit
integers and any arithmetic on it is silently wrong. Offsets are 64-bit: 65536 rows of 65536 would wrap 32
bits to 0.
"""

# Triton gives the parameters their types when it compiles a kernel.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, out, count, BLOCK: tl.constexpr):
    """``out = x + y`` over ``count`` elements."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    left = tl.load(x + at, mask=inside).to(tl.float32)
    right = tl.load(y + at, mask=inside).to(tl.float32)
    tl.store(out + at, (left + right).to(out.dtype.element_ty), mask=inside)


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    """One row to a program, all of it in one block.

    What lies outside counts as minus infinity, never as 0.
    """
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    inside = at < columns
    values = tl.load(x + row + at, mask=inside, other=-float("inf")).to(tl.float32)
    raised = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row + at, (raised / tl.sum(raised, axis=0)).to(out.dtype.element_ty), mask=inside)


@triton.jit
def online_softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    """One row to a program in two passes (Milakov and Gimelshein, 2018, algorithm 3).

    The first keeps each lane's maximum m and its sum l of exp(x - m): ``l <- l exp(m - m') + exp(x - m')``.
    """
    row = tl.program_id(0).to(tl.int64) * columns
    lane = tl.arange(0, BLOCK)
    # The lowest finite number stands for "nothing seen": minus infinity less itself would be NaN.
    highest = tl.full((BLOCK,), -3.4028234663852886e38, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + lane
        values = tl.load(x + row + at, mask=at < columns, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(highest, values)
        total = total * tl.exp(highest - higher) + tl.exp(values - higher)
        highest = higher
    peak = tl.max(highest, axis=0)
    scale = tl.sum(total * tl.exp(highest - peak), axis=0)
    for start in range(0, columns, BLOCK):
        at = start + lane
        inside = at < columns
        values = tl.load(x + row + at, mask=inside, other=-float("inf")).to(tl.float32)
        tl.store(out + row + at, (tl.exp(values - peak) / scale).to(out.dtype.element_ty), mask=inside)


@triton.jit
def bias_gelu_kernel(x, bias, out, count, channels, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr):
    """``0.5 v (1 + erf(v / sqrt 2))`` with ``v = x + bias[i mod channels]``."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    values = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if HAS_BIAS:
        values += tl.load(bias + at % channels, mask=inside, other=0.0).to(tl.float32)
    gelu = 0.5 * values * (1.0 + tl.erf(values * 0.7071067811865476))
    tl.store(out + at, gelu.to(out.dtype.element_ty), mask=inside)


@triton.jit
def layer_norm_kernel(
    x, weight, bias, out, columns, eps, HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr
):
    """One row to a program.

    Mean, then the variance around it (not the difference of squares, which cancels).
    """
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    inside = at < columns
    values = tl.load(x + row + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(values, axis=0) / columns
    centered = tl.where(inside, values - mean, 0.0)
    scaled = centered / tl.sqrt(tl.sum(centered * centered, axis=0) / columns + eps)
    if HAS_WEIGHT:
        scaled *= tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    if HAS_BIAS:
        scaled += tl.load(bias + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row + at, scaled.to(out.dtype.element_ty), mask=inside)


@triton.jit
def matmul_kernel(
    a, b, bias, out, M, N, K, a_row, a_column, b_row, b_column,
    HAS_BIAS: tl.constexpr, UPCAST: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """``out[M, N] = a[M, K] b[K, N] (+ bias[N])``, strides in elements; ``out`` is contiguous.

    Programs run down ``GROUP_M`` rows of blocks before they move to the next column, so that blocks of b stay
    in cache (Tillet et al., MAPL 2019; the order of Triton's own tutorial). ``UPCAST``: products in float32
    (the interpreter).
    """
    program = tl.program_id(0)
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = program // (GROUP_M * columns) * GROUP_M
    height = tl.minimum(rows - first, GROUP_M)
    block_m = first + program % (GROUP_M * columns) % height
    block_n = program % (GROUP_M * columns) // height
    m = block_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = block_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        left_at = a + m[:, None] * a_row + k[None, :].to(tl.int64) * a_column
        right_at = b + k[:, None].to(tl.int64) * b_row + n[None, :] * b_column
        left = tl.load(left_at, mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(right_at, mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        if UPCAST:
            left, right = left.to(tl.float32), right.to(tl.float32)
        total = tl.dot(left, right, total, input_precision="ieee")
    if HAS_BIAS:
        total += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    place = out + m[:, None] * N + n[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))
