"""The kernels on torch tensors.

Sizes, strides and blocks are worked out here, wrong shapes are refused here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import triton
from torch import Tensor
from triton import knobs

from experiments.compilation.live.triton_kernels import kernels

BLOCK = 1024
#: A longer row does not fit one block: softmax goes over it twice, layer norm refuses it.
WIDEST = 65536
#: Lanes of the softmax that goes over a row in pieces.
LANES = 4096


@dataclass(frozen=True)
class BlockSizes:
    """How a matmul is divided; ``stages`` of loads in flight and ``warps`` to a program."""

    m: int
    n: int
    k: int
    stages: int = 2
    warps: int = 4
    group: int = 8


#: Fits every GPU.
UNTUNED = BlockSizes(64, 64, 32)
#: The sides of the interpreter's blocks: a step of Python is expensive there, lanes are not.
WIDE = 256


def default_blocks(rows: int, columns: int, inner: int) -> BlockSizes:
    """Return blocks where none were chosen by timing."""
    if not knobs.runtime.interpret:
        return UNTUNED
    m, n, k = (max(16, min(WIDE, triton.next_power_of_2(size))) for size in (rows, columns, inner))
    return BlockSizes(m, n, k)


def _room(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Return where a kernel writes.

    The interpreter cuts a float32 to bfloat16 instead of rounding it: there torch rounds.
    """
    cuts = knobs.runtime.interpret and like.dtype == torch.bfloat16
    return torch.empty(shape, dtype=torch.float32 if cuts else like.dtype, device=like.device)


def add(x: Tensor, y: Tensor) -> Tensor:
    """Elementwise sum of two tensors of one shape."""
    if x.shape != y.shape:
        raise ValueError(f"shapes {tuple(x.shape)} and {tuple(y.shape)} differ")
    x, y = x.contiguous(), y.contiguous()
    out = _room(x.shape, x)
    kernels.add_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, out, x.numel(), BLOCK=BLOCK)
    return out.to(x.dtype)


def softmax(x: Tensor) -> Tensor:
    """Along the last axis."""
    x = x.contiguous()
    out, columns = _room(x.shape, x), x.shape[-1]
    if columns > WIDEST:
        kernels.online_softmax_kernel[(x.numel() // columns,)](x, out, columns, BLOCK=LANES)
    else:
        block = triton.next_power_of_2(columns)
        kernels.softmax_kernel[(x.numel() // columns,)](x, out, columns, BLOCK=block)
    return out.to(x.dtype)


def bias_gelu(x: Tensor, bias: Tensor | None = None) -> Tensor:
    """Exact GELU of ``x [..., C]`` plus ``bias [C]``."""
    x = x.contiguous()
    out, grid = _room(x.shape, x), (triton.cdiv(x.numel(), BLOCK),)
    has_bias = bias is not None
    beside = bias.contiguous() if bias is not None else x
    kernels.bias_gelu_kernel[grid](x, beside, out, x.numel(), x.shape[-1], HAS_BIAS=has_bias, BLOCK=BLOCK)
    return out.to(x.dtype)


def layer_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Over the last axis, with weight and bias of that length or none."""
    x = x.contiguous()
    out, columns = _room(x.shape, x), x.shape[-1]
    if columns > WIDEST:
        raise ValueError(f"rows of {columns} are longer than a block of {WIDEST}")
    kernels.layer_norm_kernel[(x.numel() // columns,)](
        x, x if weight is None else weight, x if bias is None else bias, out, columns, eps,
        HAS_WEIGHT=weight is not None, HAS_BIAS=bias is not None, BLOCK=triton.next_power_of_2(columns),
    )  # fmt: skip
    return out.to(x.dtype)


def matmul(a: Tensor, b: Tensor, bias: Tensor | None = None, blocks: BlockSizes | None = None) -> Tensor:
    """Return ``a [M, K] @ b [K, N] + bias [N]`` in a's type.

    A transposed operand is read through its strides.
    """
    (rows, inner), (other, columns) = a.shape, b.shape
    if inner != other:
        raise ValueError(f"inner sizes {inner} and {other} differ")
    blocks = blocks or default_blocks(rows, columns, inner)
    out = _room((rows, columns), a)
    grid = (triton.cdiv(rows, blocks.m) * triton.cdiv(columns, blocks.n),)
    kernels.matmul_kernel[grid](
        a, b, out if bias is None else bias.contiguous(), out, rows, columns, inner, *a.stride(), *b.stride(),
        HAS_BIAS=bias is not None, UPCAST=bool(knobs.runtime.interpret),
        BLOCK_M=blocks.m, BLOCK_N=blocks.n, BLOCK_K=blocks.k, GROUP_M=blocks.group,
        num_warps=blocks.warps, num_stages=blocks.stages,
    )  # fmt: skip
    return out.to(a.dtype)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, blocks: BlockSizes | None = None) -> Tensor:
    """Return ``x [..., K]`` times ``weight [N, K]`` transposed."""
    out = matmul(x.reshape(-1, x.shape[-1]), weight.t(), bias, blocks)
    return out.reshape(*x.shape[:-1], weight.shape[0])


def tiled_matmul(a: Tensor, b: Tensor, bias: Tensor | None, m: int, n: int, k: int, warps: int) -> Tensor:
    """Return ``matmul`` by blocks given as numbers."""
    return matmul(a, b, bias, BlockSizes(m, n, k, warps=warps))


def tiled_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, m: int, n: int, k: int, warps: int
) -> Tensor:
    """Return ``linear`` by blocks given as numbers."""
    return linear(x, weight, bias, BlockSizes(m, n, k, warps=warps))


def linear_gelu(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return a linear layer whose bias and GELU are one kernel behind its matmul."""
    return bias_gelu(linear(x, weight), bias)


KERNELS: Mapping[str, Callable[..., Tensor]] = {
    function.__name__: function
    for function in (
        add,
        softmax,
        bias_gelu,
        layer_norm,
        matmul,
        linear,
        tiled_matmul,
        tiled_linear,
        linear_gelu,
    )
}
