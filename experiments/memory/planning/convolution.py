"""Convolution algorithms of a step: how long each would take, with how much scratch memory.

A step has one time for each op: that of the direct algorithm, which needs no scratch. Others are estimated
from their work at the step's own best rates (FLOPs and bytes a second over all its ops), as a roofline.
Assumed, since nobody publishes cuDNN's tables: FFT pads each map to powers of two, keeps the spectra of
inputs, filters and outputs, moves each twice, and reaches 60 % of the best rates (counts alone would make it
2.5 to 3 times faster than direct at 3 x 3; 1.84 times was measured: Vasilache et al., fbfft, ICLR 2015);
fused Winograd F(2x2, 3x3) does 16/36 of the multiplications at 70 % of the best rate and keeps the
transformed filters. FFT came with cuDNN 3, Winograd with cuDNN 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from experiments.workloads.step import KINDS, Step

PARAMETER = KINDS.index("parameter")
#: Largest side that cuDNN's FFT takes.
LARGEST_FFT = 256
FFT_RATE, WINOGRAD_RATE = 0.6, 0.7


@dataclass(frozen=True)
class ConvolutionShape:
    """N images, C channels of H x W in, K channels of P x Q out, filters of R x S; ``value`` bytes each."""

    n: int
    c: int
    h: int
    w: int
    k: int
    r: int
    s: int
    p: int
    q: int
    value: int

    @property
    def flops(self) -> float:
        """Of one direct pass."""
        return 2.0 * self.n * self.k * self.p * self.q * self.c * self.r * self.s

    @property
    def same_size(self) -> bool:
        """Stride 1: as many positions out as in, but for the border."""
        return self.p >= self.h - self.r + 1 and self.q >= self.w - self.s + 1


@dataclass(frozen=True)
class AlgorithmChoice:
    """One algorithm for one op."""

    name: str
    seconds: float
    workspace: int


@dataclass(frozen=True)
class Rates:
    """The best that any op of a step reaches: FLOPs and bytes a second."""

    flops: float
    bytes: float

    def seconds(self, flops: float, moved: float) -> float:
        return max(flops / self.flops, moved / self.bytes)


def rates_of(step: Step) -> Rates:
    seconds = np.where(step.ops.seconds > 0, step.ops.seconds, np.inf)
    best = [
        float(np.nanmax(amount / seconds, initial=0.0)) for amount in (step.ops.flops, step.ops.bytes_moved)
    ]
    return Rates(best[0] or math.inf, best[1] or math.inf)


def fft(conv: ConvolutionShape, rates: Rates) -> AlgorithmChoice | None:
    """Transforms, products of spectra and transforms back; every map's spectrum is held."""
    height, width = (2 ** math.ceil(math.log2(side)) for side in (conv.h + conv.r - 1, conv.w + conv.s - 1))
    if not conv.same_size or max(height, width) > LARGEST_FFT or conv.r * conv.s == 1:
        return None
    maps = conv.n * conv.c + conv.n * conv.k + conv.c * conv.k
    points = height * (width // 2 + 1)
    spectra = maps * points * 2 * conv.value
    transforms = 2.5 * maps * height * width * math.log2(height * width)
    products = 8.0 * conv.n * conv.c * conv.k * points
    return AlgorithmChoice("fft", rates.seconds(transforms + products, 2 * spectra) / FFT_RATE, spectra)


def winograd(conv: ConvolutionShape, rates: Rates) -> AlgorithmChoice | None:
    if not conv.same_size or (conv.r, conv.s) != (3, 3):
        return None
    data = (conv.n * conv.c * conv.h * conv.w + conv.n * conv.k * conv.p * conv.q) * conv.value
    filters = 16 * conv.c * conv.k * conv.value
    return AlgorithmChoice(
        "winograd", rates.seconds(conv.flops * 16 / 36 / WINOGRAD_RATE, data + filters), filters
    )


#: What a library offers in addition to the direct algorithm.
LIBRARIES: Mapping[str, tuple[Callable[[ConvolutionShape, Rates], AlgorithmChoice | None], ...]] = {
    "cudnn4": (fft,),
    "cudnn5": (fft, winograd),
}


def convolution_of(step: Step, op: int) -> ConvolutionShape | None:
    """The shape of a convolution or of its backward op; ``None`` where the step does not know it."""
    if "conv" not in step.ops.target[op].lower():
        return None
    shapes = [
        (t, step.tensors.shape[t])
        for t in dict.fromkeys((*step.inputs[op].tolist(), *step.outputs[op].tolist()))
    ]
    filters = [shape for t, shape in shapes if len(shape) == 4 and step.tensors.kind[t] == PARAMETER]
    maps = [shape for t, shape in shapes if len(shape) == 4 and step.tensors.kind[t] != PARAMETER]
    if not filters:
        return None
    k, c, r, s = filters[0]
    maps = [shape for shape in maps if shape != filters[0]]
    inner = next((shape for shape in maps if shape[1] == c and shape[2] >= r), None)
    outer = next((shape for shape in reversed(maps) if inner and shape[:2] == (inner[0], k)), None)
    if inner is None or outer is None or outer[2] > inner[2] + r:
        return None
    value = int(step.tensors.bytes[shapes[0][0]]) // max(1, math.prod(shapes[0][1]))
    return ConvolutionShape(inner[0], c, inner[2], inner[3], k, r, s, outer[2], outer[3], value or 4)


def algorithms(step: Step, library: str) -> dict[int, list[AlgorithmChoice]]:
    """Return the algorithms of each convolution.

    The direct one as timed, without scratch, then those of ``library``.

    A backward op makes several passes (data, filters); each takes as long as a forward one, in the same
    scratch.
    """
    rates, found = rates_of(step), {}
    for op in range(len(step.ops)):
        conv = convolution_of(step, op)
        if conv is None or step.ops.view[op]:
            continue
        passes = max(1, round(float(step.ops.flops[op]) / conv.flops))
        others = [choice for make in LIBRARIES[library] if (choice := make(conv, rates))]
        direct = AlgorithmChoice("direct", float(step.ops.seconds[op]), int(step.ops.workspace[op]))
        found[op] = [direct, *(AlgorithmChoice(c.name, passes * c.seconds, c.workspace) for c in others)]
    return found


def fastest(choices: list[AlgorithmChoice]) -> AlgorithmChoice:
    return min(choices, key=lambda choice: (choice.seconds, choice.workspace))
