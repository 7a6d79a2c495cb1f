"""The cheapest algorithm of every operator on every library, by elementary operations (section 4.2).

Products: the plain one (2 m n k), or Strassen's to some depth: 7 products of quarters and 18 sums of them at
each level (Strassen, 1969). Convolutions: the plain one, or Winograd's with tiles of t x t outputs (Lavin and
Gray, 2016): (t + r - 1)^2 products for each pair of channels in a tile, and the transforms of inputs and
outputs, which are small products themselves. Transforms of weights are made once and not counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from experiments.serving.interface.splitting import DevicePlan
from experiments.workloads.split_task import Backend, ConvolutionShape, MatmulShape, Shape, SplitTask

#: Depths of Strassen's product, and tiles of Winograd's convolution: larger ones lose too many digits.
DEPTHS, TILES = (1, 2, 3), (2, 4, 6)
LEAST_STRASSEN = 32


def search_algorithms(task: SplitTask) -> DevicePlan:
    """Return the library with the lowest sum, and each operator's seconds and algorithm on it."""
    shaped = [one.shape for one in task.operators if one.shape is not None]
    if not shaped:
        return DevicePlan(tuple(one.device or 0.0 for one in task.operators), {})
    best = min(task.backends, key=lambda backend: sum(_seconds(shape, backend) for shape in shaped))
    seconds = [
        _seconds(one.shape, best) if one.shape is not None else one.device or 0.0 for one in task.operators
    ]
    named = {one.name: _cheapest(one.shape)[0] for one in task.operators if one.shape is not None}
    sums = {backend.name: sum(_seconds(shape, backend) for shape in shaped) for backend in task.backends}
    return DevicePlan(tuple(seconds), {"backend": best.name, "algorithms": named, "seconds": sums})


def _seconds(shape: Shape, backend: Backend) -> float:
    return _cheapest(shape)[1] / backend.rate + backend.scheduling


def _cheapest(shape: Shape) -> tuple[str, float]:
    options = _products(shape) if isinstance(shape, MatmulShape) else _convolutions(shape)
    return min(options, key=lambda option: option[1])


def _products(shape: MatmulShape) -> Iterator[tuple[str, float]]:
    m, n, k = shape.m, shape.n, shape.k
    yield "plain", 2.0 * m * n * k
    sums = 0.0
    for depth in DEPTHS:
        if min(m, n, k) < LEAST_STRASSEN << depth:
            return
        quarter = 4.0**depth
        sums += 7 ** (depth - 1) * (5 * m * k + 5 * k * n + 8 * m * n) / quarter
        yield f"strassen {depth}", 7**depth * 2.0 * m * n * k / 8**depth + sums


def _convolutions(shape: ConvolutionShape) -> Iterator[tuple[str, float]]:
    channels = shape.inputs * shape.outputs
    yield "plain", 2.0 * channels * shape.kernel**2 * shape.height * shape.width
    if shape.kernel == 1:
        return
    for tile in TILES:
        side = tile + shape.kernel - 1
        tiles = math.ceil(shape.height / tile) * math.ceil(shape.width / tile)
        inwards = 4.0 * side**3 * shape.inputs
        outwards = 2.0 * (tile * side**2 + tile**2 * side) * shape.outputs
        yield f"winograd {tile}", tiles * (2.0 * side**2 * channels + inwards + outwards)
