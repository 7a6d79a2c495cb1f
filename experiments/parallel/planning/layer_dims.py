"""Dimensions of a layer's output along which an operator can be divided, as far as a layer graph tells them.

A profile writes a layer's arguments (``Conv2d(64, 128, kernel_size=(3, 3), ...)``); a captured model only its operator,
parameters and FLOPs, from which the output channels of a convolution or matrix product follow: with P parameters, F
multiplications and O outputs a sample, F = (P - C) O / C where there is a bias and F = P O / C where there is none.
Other layers keep the channels of what they read. Images are taken as square. What cannot be known is 1: it is not divided.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from experiments.core.units import DTYPE_BYTES
from experiments.workloads.layers import LayerGraph

WEIGHTED = ("conv2d", "linear", "convolution", "addmm", "mm", "embedding")
POINTWISE = (
    "relu batchnorm dropout add _adaptive_avg avgpool avg_pool maxpool max_pool native_batch_norm native_dropout gelu silu "
    "hardtanh sigmoid tanh mul __getitem__"
)
JOINING = ("concat", "cat")
FLATTENING = ("view", "flatten", "reshape")
#: Reads a shape, moves no data.
SHAPES = ("size",)


@dataclass(frozen=True)
class Window:
    """What an output row or column reads of the input's: ``size`` of them from ``stride * index - padding`` on."""

    size: int = 1
    stride: int = 1
    padding: int = 0


@dataclass(frozen=True)
class LayerDims:
    """Extents of one layer's output for a whole batch.

    ``samples`` 0: the batch stands for so many samples that any number of parts divides it. ``mixes`` says that every
    output channel reads all input channels; ``weights`` that parameters belong to output channels. ``joins``: inputs lie
    one after another in the channels. ``window`` is that of rows and columns alike; ``None`` where it is not known, then
    only the whole image will do. ``known`` is false for layers of which nothing but the samples is known.
    """

    samples: int
    channels: int = 1
    height: int = 1
    width: int = 1
    mixes: bool = False
    weights: bool = False
    joins: bool = False
    window: Window | None = Window()
    known: bool = True

    @property
    def extents(self) -> tuple[int, int, int, int]:
        """Samples, channels, height, width."""
        return self.samples, self.channels, self.height, self.width


def layer_dims(model: LayerGraph, batch: int) -> tuple[LayerDims, ...]:
    """The dimensions of every layer for ``batch`` samples."""
    samples_known = "batch" not in model.facts or model.facts["batch"] is not None
    found: list[LayerDims] = []
    for layer, inputs in enumerate(model.predecessors.lists()):
        read = [found[source] for source in inputs if not model.kind[source].lower().startswith(SHAPES)]
        dims = _dims(model, layer, read, samples_known)
        found.append(replace(dims, samples=batch if samples_known else 0))
    return tuple(found)


def _dims(model: LayerGraph, layer: int, inputs: Sequence[LayerDims], samples_known: bool) -> LayerDims:
    """``samples`` is filled in by the caller; an image's size follows from the bytes of a sample, if these are known."""
    kind = model.kind[layer].lower()
    outputs = _per_sample(model, layer, float(model.output_bytes[layer])) / _element(model)
    if kind.startswith(WEIGHTED):
        channels = _written_channels(kind) or _solved_channels(model, layer, outputs)
        mixes = not kind.startswith("embedding") and not _grouped(kind)
        dims = LayerDims(0, channels, mixes=mixes, weights=True, window=_window(kind))
    elif kind.startswith(JOINING) and inputs:
        dims = LayerDims(0, sum(source.channels for source in inputs), joins=True)
    elif kind.startswith(FLATTENING) and inputs and samples_known:
        dims = LayerDims(0, int(outputs), window=None)
    elif kind.startswith(tuple(POINTWISE.split())) and inputs:
        weights = bool(model.parameter_bytes[layer])
        dims = LayerDims(0, inputs[0].channels, weights=weights, window=_window(kind))
    else:
        return LayerDims(0, known=False)
    if dims.channels < 2 or not all(source.known for source in inputs):
        return LayerDims(0, known=False)
    if not samples_known or kind.startswith(FLATTENING) or not outputs:
        return dims
    side = math.isqrt(max(1, round(outputs / dims.channels)))
    if side * side * dims.channels != outputs:
        return LayerDims(0, known=False)
    if kind.startswith("convolution") and inputs:
        dims = replace(dims, window=_solved_window(model, layer, dims, inputs[0], side))
    return replace(dims, height=side, width=side)


def _element(model: LayerGraph) -> int:
    return DTYPE_BYTES[str(model.facts.get("dtype", "float32"))]


def _per_sample(model: LayerGraph, layer: int, figure: float) -> float:
    return figure / model.batch


def _written_channels(kind: str) -> int:
    """The output channels of a layer as a profile writes it; 0 where it does not."""
    if found := re.match(r"linear\(.*out_features=(\d+)", kind):
        return int(found[1])
    found = re.match(r"(?:conv2d|embedding)\(\d+, (\d+)", kind)
    return int(found[1]) if found else 0


def _solved_channels(model: LayerGraph, layer: int, outputs: float) -> int:
    """Output channels from parameters, FLOPs and outputs of a sample; 0 where they give no whole number."""
    parameters = float(model.parameter_bytes[layer]) / _element(model)
    products = _per_sample(model, layer, float(model.forward_flops[layer])) / 2
    for positions in ((products + outputs) / parameters, products / parameters) if parameters else ():
        channels = outputs / positions if positions else 0.0
        if positions.is_integer() and channels.is_integer():
            return int(channels)
    return 0


def _solved_window(
    model: LayerGraph, layer: int, dims: LayerDims, source: LayerDims, side: int
) -> Window | None:
    """A square kernel from the weights (a bias or none), its stride from both images, the padding that keeps them."""
    parameters = round(float(model.parameter_bytes[layer]) / _element(model))
    for weights in (parameters - dims.channels, parameters):
        size = math.isqrt(max(1, weights // (dims.channels * source.channels)))
        if size * size * dims.channels * source.channels == weights:
            return Window(size, max(1, round(source.height / side)), (size - 1) // 2)
    return None


def _grouped(kind: str) -> bool:
    return "groups=" in kind


def _window(kind: str) -> Window | None:
    """As written; a captured operator does not tell its window, except that pointwise ones have none."""
    if kind.startswith(("convolution", "max_pool", "avg_pool", "_adaptive_avg")):
        return None
    sizes = re.search(r"kernel_size=\(?(\d+)(?:, (\d+))?", kind)
    if not sizes:
        return Window()
    if sizes[2] and sizes[2] != sizes[1]:
        return None
    figures = [re.search(rf"{name}=\(?(\d+)", kind) for name in ("stride", "padding")]
    stride, padding = (
        int(found[1]) if found else default for found, default in zip(figures, (1, 0), strict=True)
    )
    return Window(int(sizes[1]), stride, padding)
