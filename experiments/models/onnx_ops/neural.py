"""Products, convolutions and normalizations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.models.onnx_ops.table import How, operator

_CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


@operator("MatMul")
def _matmul(how: How, left: Tensor, right: Tensor) -> Tensor:
    return torch.matmul(left, right)


@operator("Gemm")
def _gemm(how: How, left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """``alpha a b + beta c``; the plain forms are one product with its bias."""
    alpha, beta = how.get("alpha", 1.0), how.get("beta", 1.0)
    left = left.t() if how.get("transA", 0) else left
    right = right.t() if how.get("transB", 0) else right
    if bias is None:
        return torch.mm(left, right) * alpha if alpha != 1 else torch.mm(left, right)
    return torch.addmm(bias, left, right, beta=beta, alpha=alpha)


@operator("Einsum")
def _einsum(how: How, *values: Tensor) -> Tensor:
    return torch.einsum(how.attributes["equation"].replace(" ", ""), *values)


def pads_of(how: How, sizes: Sequence[int], kernel: Sequence[int]) -> list[tuple[int, int]]:
    """Padding before and after each spatial axis, worked out where the node says ``SAME``."""
    rank = len(kernel)
    strides, spread = how.get("strides") or [1] * rank, how.get("dilations") or [1] * rank
    automatic = how.get("auto_pad", "NOTSET")
    if automatic in ("SAME_UPPER", "SAME_LOWER"):
        found = []
        for size, width, stride, gap in zip(sizes, kernel, strides, spread, strict=True):
            total = max((-(-size // stride) - 1) * stride + (width - 1) * gap + 1 - size, 0)
            small, large = total // 2, total - total // 2
            found.append((small, large) if automatic == "SAME_UPPER" else (large, small))
        return found
    given = [0] * (2 * rank) if automatic == "VALID" else list(how.get("pads") or [0] * (2 * rank))
    return list(zip(given[:rank], given[rank:], strict=True))


def pad(x: Tensor, pads: Sequence[tuple[int, int]], value: float = 0.0) -> tuple[Tensor, list[int]]:
    """``x`` and what a convolution is still to pad: all of it where both ends are equal, else nothing."""
    if all(before == after for before, after in pads):
        return x, [before for before, _ in pads]
    flat = [amount for pair in reversed(pads) for amount in pair]
    return F.pad(x, flat, value=value), [0] * len(pads)


@operator("Conv")
def _conv(how: How, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    rank = weight.ndim - 2
    x, padding = pad(x, pads_of(how, x.shape[2:], weight.shape[2:]))
    strides, spread = how.get("strides") or (1,) * rank, how.get("dilations") or (1,) * rank
    out: Tensor = _CONVOLUTIONS[rank](x, weight, bias, strides, padding, spread, how.get("group", 1))
    return out


@operator("ConvTranspose")
def _conv_transpose(how: How, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``output_shape`` and ``SAME`` say how much of the ends is cut; torch cuts both ends alike, so the rest
    is cut here.
    """
    rank = weight.ndim - 2
    strides, spread = how.get("strides") or (1,) * rank, how.get("dilations") or (1,) * rank
    extra = how.get("output_padding") or (0,) * rank
    whole = _TRANSPOSED[rank](x, weight, bias, strides, 0, extra, how.get("group", 1), spread)
    for place, (before, after) in enumerate(_cuts(how, x, whole, strides)):
        whole = whole.narrow(place + 2, before, whole.shape[place + 2] - before - after)
    return whole


def _cuts(how: How, x: Tensor, whole: Tensor, strides: Sequence[int]) -> list[tuple[int, int]]:
    rank = x.ndim - 2
    automatic, wanted = how.get("auto_pad", "NOTSET"), how.get("output_shape")
    if wanted is None and automatic.startswith("SAME"):
        wanted = [size * stride for size, stride in zip(x.shape[2:], strides, strict=True)]
    if wanted is None:
        given = list(how.get("pads") or [0] * (2 * rank)) if automatic != "VALID" else [0] * (2 * rank)
        return list(zip(given[:rank], given[rank:], strict=True))
    found = []
    for size, target in zip(whole.shape[2:], wanted[-rank:], strict=True):
        total = size - target
        half = (total // 2, total - total // 2)
        found.append(half if automatic == "SAME_UPPER" else half[::-1])
    return found


@operator("BatchNormalization")
def _batch_norm(how: How, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """ONNX weighs the old statistics by ``momentum``, torch the new ones."""
    rate = 1 - how.get("momentum", 0.9)
    return F.batch_norm(x, mean, variance, scale, bias, how.training, rate, how.get("epsilon", 1e-5))


@operator("InstanceNormalization")
def _instance_norm(how: How, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return F.instance_norm(x, None, None, scale, bias, True, 0.0, how.get("epsilon", 1e-5))


@operator("GroupNormalization")
def _group_norm(how: How, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Up to version 20 scale and bias are one for each group, not for each channel."""
    groups = how.attributes["num_groups"]
    if scale.shape[0] != x.shape[1]:
        scale, bias = (value.repeat_interleave(x.shape[1] // groups) for value in (scale, bias))
    return F.group_norm(x, groups, scale, bias, how.get("epsilon", 1e-5))


@operator("LayerNormalization")
def _layer_norm(how: How, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    shape = tuple(x.shape[how.get("axis", -1) :])
    scale = scale.expand(shape)
    return F.layer_norm(
        x, shape, scale, None if bias is None else bias.expand(shape), how.get("epsilon", 1e-5)
    )


@operator("RMSNormalization")
def _rms_norm(how: How, x: Tensor, scale: Tensor) -> Tensor:
    shape = tuple(x.shape[how.get("axis", -1) :])
    return F.rms_norm(x, shape, scale.expand(shape), how.get("epsilon", 1e-5))


@operator("LRN")
def _local_response(how: How, x: Tensor) -> Tensor:
    size: Any = how.attributes["size"]
    return F.local_response_norm(x, size, how.get("alpha", 1e-4), how.get("beta", 0.75), how.get("bias", 1.0))
