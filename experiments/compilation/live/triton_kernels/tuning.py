"""A matmul's blocks chosen by timing them on this GPU, once for each size and type.

Triton's own ``autotune`` is not used, as it fails under the interpreter already when a kernel is declared.
"""

from __future__ import annotations

import functools
import itertools

import torch
from torch import Tensor
from triton.runtime.errors import OutOfResources
from triton.testing import do_bench

from experiments.compilation.live.triton_kernels import launch
from experiments.compilation.live.triton_kernels.launch import BlockSizes

#: Rows, columns and depth of a block, loads in flight, warps: what suits tall, square and flat products.
CONFIGURATIONS = tuple(
    BlockSizes(m, n, k, stages, warps)
    for (m, n, warps), k, stages in itertools.product(
        ((128, 256, 8), (256, 128, 8), (128, 128, 8), (128, 128, 4), (128, 64, 4), (64, 128, 4), (64, 64, 4),
         (32, 128, 4), (32, 64, 4), (16, 64, 4)),
        (32, 64),
        (3, 4),
    )
)  # fmt: skip


@functools.cache
def fastest(rows: int, columns: int, inner: int, dtype: torch.dtype, transposed: bool = False) -> BlockSizes:
    """Return the blocks of ``CONFIGURATIONS`` with the least median time for a product of these sizes.

    It is ``[rows, inner] @ [inner, columns]``.
    """
    a = torch.randn(rows, inner, device="cuda", dtype=dtype)
    b = torch.randn(columns, inner, device="cuda", dtype=dtype).t()
    if not transposed:
        b = b.contiguous()
    return min(CONFIGURATIONS, key=lambda blocks: _seconds(a, b, blocks))


def _seconds(a: Tensor, b: Tensor, blocks: BlockSizes) -> float:
    """Median time of one product.

    Infinite for blocks that do not fit the GPU's shared memory or registers.
    """
    try:
        return float(do_bench(lambda: launch.matmul(a, b, None, blocks), return_mode="median")) / 1e3
    except OutOfResources:
        return float("inf")


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Return ``a [M, K] @ b [K, N]`` with the fastest blocks."""
    (rows, inner), columns = a.shape, b.shape[1]
    return launch.matmul(a, b, None, fastest(rows, columns, inner, a.dtype))


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``launch.linear`` with the fastest blocks."""
    columns, inner = weight.shape
    return launch.linear(
        x, weight, bias, fastest(x.numel() // inner, columns, inner, x.dtype, transposed=True)
    )


def linear_gelu(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``launch.linear_gelu`` with the fastest blocks."""
    return launch.bias_gelu(linear(x, weight), bias)
