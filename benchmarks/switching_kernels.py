"""The kernels of PipeSwitch's study under MPS, where processes meet kernel by kernel.

An operator of the zoo that takes time is a kernel, with the exceptions of ``KERNELS``: what PyTorch 1.3 and
transformers 2.5, which the authors' log was made with, launch for it. Durations are the sheet's roofline,
scaled to what the whole lasts. Training is the zoo's step of ResNet152 at the 72 pictures of the authors'
branches of MPS. What such a step lasts under their allocator of managed memory the log does not say:
``ITERATION`` is what ResNet152's row of MPS asks for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from experiments.workloads.step import KINDS, Step

#: gelu of five elementwise operators; attention as scale, mask, softmax, two products and four copies; a
#: convolution's gradients of inputs and of weights.
KERNELS = {"gelu": 5, "_scaled_dot_product_flash_attention_for_cpu": 9, "convolution_backward": 2}
#: Within an encoder, whose inputs have three axes: a product, and its bias.
BIASED = {"addmm": 2}
#: Pictures of a training step, and its seconds.
TRAINED_IN_MPS, ITERATION = 72, 2.0
WEIGHTS = (KINDS.index("parameter"), KINDS.index("buffer"))


def kernel_rows(step: Step, within: str, seconds: float) -> list[dict[str, Any]]:
    """Return the kernels of the modules ``within`` as rows of a scenario; they last ``seconds`` together."""
    kernels = list(_kernels(step, within))
    scale = seconds / sum(time for time, _ in kernels)
    return [{"seconds": round(time * scale, 9), "bytes": size} for time, size in kernels]


def _kernels(step: Step, within: str) -> Iterator[tuple[float, float]]:
    """Seconds and bytes of weights that were not read before."""
    known: set[int] = set()
    counts = KERNELS | (BIASED if within else {})
    size = 0.0
    for op in range(len(step.ops)):
        if not step.ops.module[op].startswith(within):
            continue
        new = {int(one) for one in step.inputs[op] if step.tensors.kind[one] in WEIGHTS} - known
        known |= new
        size += float(sum(step.tensors.bytes[one] for one in new))
        count = counts.get(re.sub(r"_\d+$", "", step.ops.name[op]), 1)
        time = float(step.ops.seconds[op])
        if time > 0:
            yield from ((time / count, size if first == 0 else 0.0) for first in range(count))
            size = 0.0
