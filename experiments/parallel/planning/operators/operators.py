"""The operators of any LayerGraph for a number of samples: as its source tells, else read off its layers.

A layer of which only bytes and seconds are known is one operator with a batch. Layer profiles say what their
layers are ("Conv2d(64, 128, ...)"), from which channels, and with the bytes of the output height and width,
follow.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

from experiments.core.units import DTYPE_BYTES
from experiments.parallel.planning.operators.transformer_operators import transformer_operators
from experiments.workloads.einsum import Operand, Operator
from experiments.workloads.layers import LayerGraph

#: Dimensions whose size grows with the samples.
GROWING = ("batch", "capacity")
PICTURE = ("batch", "channel", "height", "width")
#: What layers that lay a picture out as features are called.
FLAT = ("View", "Flatten", "Reshape")
#: Of a tensor as its producer made it: the sizes of its dimensions, batch first.
Shape = tuple[int, ...]


def operators_of(model: LayerGraph, samples: int | None = None) -> tuple[Operator, ...]:
    """The operators of ``model`` on ``samples`` samples (its own batch if not given), in execution order."""
    found = model.einsums or (transformer_operators(model) if model.transformer else _layer_operators(model))
    return found if samples is None else for_samples(found, samples / model.batch)


def for_samples(operators: tuple[Operator, ...], scale: float) -> tuple[Operator, ...]:
    """Return the operators for ``scale`` times as many samples."""
    return operators if scale == 1 else tuple(_scaled(operator, scale) for operator in operators)


def _scaled(operator: Operator, scale: float) -> Operator:
    sizes = tuple((n, max(1, round(size * scale)) if n in GROWING else size) for n, size in operator.sizes)
    operands = tuple(o if o.parameter >= 0 else replace(o, bytes=o.bytes * scale) for o in operator.operands)
    return replace(
        operator,
        sizes=sizes,
        operands=operands,
        output_bytes=operator.output_bytes * scale,
        stash_bytes=operator.stash_bytes * scale,
        flops=operator.flops * scale,
    )


def _layer_operators(model: LayerGraph) -> tuple[Operator, ...]:
    """One operator for each layer."""
    value = DTYPE_BYTES[str(model.facts.get("dtype", "float32"))]
    shapes: list[Shape] = []
    found: list[Operator] = []
    for layer, sources in enumerate(model.predecessors.lists()):
        elements = max(1, round(float(model.output_bytes[layer]) / value / model.batch))
        shape = _shape(model, layer, elements, [shapes[source] for source in sources])
        found.append(_operator(model, layer, shape, sources, shapes))
        shapes.append(shape)
    return tuple(found)


def _shape(model: LayerGraph, layer: int, elements: int, read: Sequence[Shape]) -> Shape:
    """Of a layer's output: from its channels or features, else like the first that it reads."""
    kind = model.kind[layer]
    made = _channels(kind)[1]
    if made and elements % made == 0:
        side = math.isqrt(elements // made)
        if kind.startswith("Conv") and side * side * made == elements:
            return model.batch, made, side, side
        if kind.startswith("Linear") and elements == made:
            return model.batch, made
    flat = kind.startswith(FLAT)
    if not flat and read and len(read[0]) == 4 and all(len(shape) == 4 for shape in read):
        channels = sum(s[1] for s in read) if kind.startswith("Concat") else read[0][1]
        side = math.isqrt(max(1, elements // channels))
        if side * side * channels == elements:
            return model.batch, channels, side, side
    if read and len(read[0]) > 1 and math.prod(read[0][1:]) == elements:
        return model.batch, elements
    return (model.batch,)


def _channels(kind: str) -> tuple[int, int]:
    """Channels or features in and out, 0 where the description does not say."""
    convolution = re.match(r"Conv\w*\((\d{1,6}), (\d{1,6})\b", kind)
    if convolution:
        return int(convolution[1]), int(convolution[2])
    linear = re.match(r"Linear\(in_features=(\d{1,9}), out_features=(\d{1,9})\b", kind)
    return (int(linear[1]), int(linear[2])) if linear else (0, 0)


def _operator(
    model: LayerGraph, layer: int, shape: Shape, sources: Sequence[int], shapes: Sequence[Shape]
) -> Operator:
    kind = _kind(model.kind[layer], shape, float(model.parameter_bytes[layer]))
    output = PICTURE[: len(shape)]
    summed = kind in ("convolution", "einsum") and _group_count(model.kind[layer]) == 1
    operands = [_read_operand(model, source, shapes[source], shape, kind, summed) for source in sources]
    inner = _inner(operands, [shapes[source] for source in sources], _channels(model.kind[layer])[0])
    if not sources:  # the model's input, of which a layer graph tells nothing else
        operands.append(Operand(output[:1], 0.0))
    if model.parameter_bytes[layer] > 0:
        dims = (output[1], *inner) if kind in ("convolution", "einsum") else output[1:2]
        operands.append(Operand(dims, float(model.parameter_bytes[layer]), parameter=layer))
    return Operator(
        name=model.layer[layer],
        kind=kind,
        layer=layer,
        sizes=(*zip(output, shape, strict=True), *inner.items()),
        output=output,
        operands=tuple(operands),
        output_bytes=float(model.output_bytes[layer]),
        stash_bytes=float(model.stash_bytes[layer]),
        flops=float(model.forward_flops[layer]),
        halo=_halo(model.kind[layer]) if kind == "convolution" else (),
        whole=output[1:2] if kind == "concatenation" else (),
        function=model.kind[layer].partition("(")[0].lower(),
    )


def _kind(description: str, shape: Shape, parameter_bytes: float) -> str:
    if len(shape) == 4 and description.startswith("Conv"):
        return "convolution"
    if len(shape) == 2 and description.startswith("Linear"):
        return "einsum"
    if description.startswith("Concat"):
        return "concatenation"
    if len(shape) == 1:
        return "layer"
    return "normalization" if parameter_bytes > 0 else "elementwise"


def _read_operand(
    model: LayerGraph, source: int, read: Shape, made: Shape, kind: str, summed: bool
) -> Operand:
    """How the output of ``source`` is walked: by the same dimensions, or summed over the inner ones."""
    size = float(model.output_bytes[source])
    if kind == "layer" or len(read) == 1:
        return Operand(("batch", *("",) * (len(read) - 1)), size, source)
    if kind == "einsum":
        return Operand(("batch", *(f"{name}.in" for name in PICTURE[1 : len(read)])), size, source)
    if len(read) != len(made):  # laid out flat: a part of the channels is a part of what they make
        return Operand(("batch", "channel", *("",) * (len(read) - 2)), size, source)
    channel = "channel.in" if summed else "" if kind == "concatenation" else "channel"
    return Operand(("batch", channel, *PICTURE[2 : len(read)]), size, source)


def _inner(operands: Sequence[Operand], read: Sequence[Shape], channels: int) -> dict[str, int]:
    """The summed dimensions and their sizes; of a layer that reads the model's input, the channels."""
    found = {
        name: size
        for operand, shape in zip(operands, read, strict=True)
        for name, size in zip(operand.dims, shape, strict=True)
        if name.endswith(".in")
    }
    return found or ({"channel.in": channels} if channels and not operands else {})


def _group_count(description: str) -> int:
    found = re.search(r"groups=(\d{1,6})", description)
    return int(found[1]) if found else 1


def _halo(description: str) -> tuple[tuple[str, int], ...]:
    """Kernel less stride, of both sides together."""
    kernel = re.search(r"kernel_size=\((\d{1,3}), (\d{1,3})\)", description)
    stride = re.search(r"stride=\((\d{1,3}), (\d{1,3})\)", description)
    if not kernel:
        return ()
    steps = (int(stride[1]), int(stride[2])) if stride else (1, 1)
    reach = [(PICTURE[2 + i], int(kernel[1 + i]) - steps[i]) for i in (0, 1)]
    return tuple((name, size) for name, size in reach if size > 0)
