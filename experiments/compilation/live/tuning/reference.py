"""Operands of a task, what torch makes of them in float64, and how far rounding in float32 can be
from that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.compilation.interface.tuning import Contraction

#: Half the distance from 1 to the next number in float32.
ROUNDING = 2.0**-24
#: One number for rows and one for columns.
Pair = tuple[int, int]


@dataclass(frozen=True)
class Operands:
    """The operands of a loop nest (float32) and what its result is compared with.

    ``in0`` and ``in1`` as the loop nest reads them, the exact ``reference`` and the ``bound`` on errors.
    """

    in0: Tensor
    in1: Tensor
    reference: Tensor
    bound: Tensor


def operands_of(nest: Contraction, seed: int) -> Operands:
    """Normal numbers from ``seed``.

    A sum of K products in any order is off by at most (K + 1) u / (1 - (K + 1) u) times the sum of their
    magnitudes.
    """
    generator = torch.Generator().manual_seed(seed)
    sizes = [access.inside or access.sizes for access in nest.inputs]
    in0, in1 = (torch.randn(size, generator=generator) for size in sizes)
    terms = math.prod(extent for _, extent in nest.reduce) + 1
    factor = terms * ROUNDING / (1 - terms * ROUNDING)
    call = torch_call(nest)
    magnitude = call(in0.double().abs(), in1.double().abs())
    return Operands(
        in0, in1, call(in0.double(), in1.double()).contiguous(), (factor * magnitude).contiguous()
    )


def torch_call(nest: Contraction) -> Callable[[Tensor, Tensor], Tensor]:
    """Torch's own operator on operands laid out as the loop nest reads them."""
    if nest.operator == "matmul":
        return torch.matmul
    convolution = _convolution(nest)
    return lambda image, kernel: convolution(image, kernel.permute(3, 0, 1, 2))


def eager_call(nest: Contraction, in0: Tensor, in1: Tensor) -> Callable[[], Tensor]:
    """Torch's own operator on the same operands laid out as torch likes them, ready to be timed."""
    if nest.operator == "matmul":
        return lambda: torch.matmul(in0, in1)
    convolution, weight = _convolution(nest), in1.permute(3, 0, 1, 2).contiguous()
    return lambda: convolution(in0, weight)


def _convolution(nest: Contraction) -> Callable[[Tensor, Tensor], Tensor]:
    """On a weight of shape (f, c, r, q)."""
    stride, padding, dilation = convolution_geometry(nest)
    return lambda image, weight: torch.conv2d(image, weight, None, stride, padding, dilation)


def convolution_geometry(nest: Contraction) -> tuple[Pair, Pair, Pair]:
    """Return a convolution's stride, padding and dilation, rows first."""
    _, _, rows, columns = nest.inputs[0].padding or (0, 0, 0, 0)
    stride, dilation = ((_step(nest, "y"), _step(nest, "x")), (_step(nest, "r"), _step(nest, "q")))
    return stride, (rows, columns), dilation


def _step(nest: Contraction, axis: str) -> int:
    """Entries of the image that one step along ``axis`` moves in its dimension."""
    return next(form[axis] for form in nest.inputs[0].forms if axis in form)
