"""oneDNN's convolution with its weight packed beforehand: the library that a tuned schedule is fair to.

Torch's eager convolution lays its weight out for oneDNN in every call. A schedule reads a weight that was
laid out once, since it is a constant of an inference graph (``operators.conv2d``), and so does a network that
was frozen (Inductor's ``freezing`` packs it so). Image and result are plain (NCHW) on both sides. A product
has no packed form here: a schedule reads its right operand as it is, as torch does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from experiments.compilation.interface.tuning import Contraction
from experiments.compilation.live.tuning.reference import convolution_geometry


def prepacked_call(nest: Contraction, in0: Tensor, in1: Tensor) -> Callable[[], Tensor] | None:
    """Return the operator on a packed weight, ready to be timed; ``None`` where there is no packed form."""
    if nest.operator != "conv2d" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return None
    stride, padding, dilation = convolution_geometry(nest)
    plain = in1.permute(3, 0, 1, 2).contiguous().to_mkldnn()
    sizes = list(in0.shape)
    reorder: Any = torch._C._nn.mkldnn_reorder_conv2d_weight
    packed = reorder(plain, padding, stride, dilation, 1, sizes)
    convolve = torch.ops.mkldnn._convolution_pointwise.default

    def call() -> Tensor:
        found: Tensor = convolve(in0, packed, None, padding, stride, dilation, 1, "none", [], "")
        return found

    return call
