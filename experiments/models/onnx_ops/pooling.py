"""Pooling over windows and over all positions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.models.onnx_ops.neural import pad, pads_of
from experiments.models.onnx_ops.table import How, operator

_MAXIMA = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_MEANS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


@operator("MaxPool")
def _max_pool(how: How, x: Tensor) -> Tensor:
    """The values alone: where they lie is not offered."""
    kernel = list(how.attributes["kernel_shape"])
    rank = len(kernel)
    pads = pads_of(how, x.shape[2:], kernel)
    starts = [size + before for size, (before, _) in zip(x.shape[2:], pads, strict=True)]
    x, padding = pad(x, pads, float("-inf"))
    if any(2 * amount > width for amount, width in zip(padding, kernel, strict=True)):
        raise ValueError(f"padding {padding} of more than half the window {kernel}")
    strides, spread = list(how.get("strides") or [1] * rank), list(how.get("dilations") or [1] * rank)
    out: Tensor = _MAXIMA[rank](x, kernel, strides, padding, spread, bool(how.get("ceil_mode", 0)))
    return _drop_late_windows(out, starts, strides)


def _drop_late_windows(out: Tensor, starts: Sequence[int], strides: Sequence[int]) -> Tensor:
    """Drop the windows of ``out`` that begin in the padding behind, which a rounded-up size would add."""
    for axis, (end, step) in enumerate(zip(starts, strides, strict=True), start=2):
        most = -(-end // step)
        out = out if out.shape[axis] <= most else out.narrow(axis, 0, most)
    return out


@operator("AveragePool")
def _average_pool(how: How, x: Tensor) -> Tensor:
    """Padding unequal at the ends is made beforehand; then the zeros count only where the node says so."""
    kernel = list(how.attributes["kernel_shape"])
    rank = len(kernel)
    strides, count = list(how.get("strides") or [1] * rank), bool(how.get("count_include_pad", 0))
    if any(gap != 1 for gap in how.get("dilations") or ()):
        raise ValueError("average pooling with gaps")
    pads, up = pads_of(how, x.shape[2:], kernel), bool(how.get("ceil_mode", 0))
    if all(before == after for before, after in pads):
        out: Tensor = _MEANS[rank](x, kernel, strides, [before for before, _ in pads], up, count)
        return out
    if up:
        raise ValueError("average pooling with unequal padding and a rounded-up size")
    wide, _ = pad(x, pads)
    mean: Tensor = _MEANS[rank](wide, kernel, strides)
    if count:
        return mean
    held, _ = pad(torch.ones_like(x), pads)
    return mean / _MEANS[rank](held, kernel, strides)


@operator("GlobalAveragePool")
def _global_average(how: How, x: Tensor) -> Tensor:
    return x.mean(tuple(range(2, x.ndim)), keepdim=True)


@operator("GlobalMaxPool")
def _global_max(how: How, x: Tensor) -> Tensor:
    return torch.amax(x, tuple(range(2, x.ndim)), keepdim=True)
