"""How much longer than an equal share a part of an operator takes: small tiles.

A product runs as tiles of its result, and a part that is narrower than a tile pays for a whole one
(``hardware.products``). Times of captured layers are linear in samples, so a division by samples is the
measure: the arithmetic of a part takes an equal share times what its tiles take over those of as many fewer
samples, and a part as long as its arithmetic, and never less than an equal share. An operator with weights is
a product of rows (what of the result the weight does not have), columns and an inner loop, as many times as
both have a dimension in common (groups, experts), forward and for both gradients; a convolution is the
product that it is laid out as. What has no weights, or is only divided by samples, loses nothing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection
from typing import NamedTuple

from experiments.core.units import DTYPE_BYTES
from experiments.hardware.products import tile_seconds
from experiments.hardware.roofline import compute_rate
from experiments.parallel.interface import PlanningEstimate
from experiments.parallel.planning.operators.divisions import BATCH, Division
from experiments.workloads.einsum import Operator

#: Products of a step with as many FLOPs each: forward, and for both gradients.
PASSES = 3
#: Kinds of operators that are products.
PRODUCTS = ("einsum", "convolution")


class PartShape(NamedTuple):
    """``repeats`` products of (``rows`` x ``inner``) by (``inner`` x ``columns``)."""

    rows: float
    columns: float
    inner: float
    repeats: float


#: The seconds of a part of an operator over those of an equal share.
LossOfParts = Callable[[Operator, Division], float]


class PartLoss:
    """The loss of parts of operators that are for ``samples`` samples, on the first device of an estimate."""

    def __init__(self, estimate: PlanningEstimate, samples: float) -> None:
        self._device, self._dtype = estimate.devices[0], estimate.dtype
        self._layer_seconds = estimate.layer_seconds * samples
        self._tiles: dict[PartShape, float] = {}

    def __call__(self, operator: Operator, division: Division) -> float:
        """Return the seconds of a part over those of an equal share; 1 or more."""
        cut = {name: parts for name, parts in division.items() if parts > 1}
        whole = product_shape(operator, DTYPE_BYTES[self._dtype]) if set(cut) - {BATCH} else None
        if whole is None:
            return 1.0
        shape, dims = whole
        ways = [math.prod(cut.get(name, 1) for name in names) for names in dims]
        part = PartShape(*(size / parts for size, parts in zip(shape, ways, strict=True)))
        by_samples = shape._replace(rows=shape.rows / math.prod(ways))
        longer = self._seconds(part) / self._seconds(by_samples)
        return max(1.0, self._arithmetic(operator, shape) * longer)

    def _arithmetic(self, operator: Operator, shape: PartShape) -> float:
        """The share of its time for which an operator computes at the device's rate; the rest moves data."""
        seconds = float(self._layer_seconds[operator.layer]) * operator.share
        computing = PASSES * 2.0 * math.prod(shape) / compute_rate(self._device, self._dtype)
        return min(1.0, computing / seconds) if seconds > 0 else 1.0

    def _seconds(self, shape: PartShape) -> float:
        """Of the tiles of all three products: forward, the gradient of what is read, that of the weight."""
        if shape not in self._tiles:
            m, n, k, repeats = shape
            passes = ((m, n, k), (m, k, n), (k, n, m))
            self._tiles[shape] = sum(
                tile_seconds(self._device, *sides, repeats, self._dtype) for sides in passes
            )
        return self._tiles[shape]


@functools.lru_cache(maxsize=4096)
def product_shape(operator: Operator, size: int) -> tuple[PartShape, tuple[Collection[str], ...]] | None:
    """Return the product that an operator is, and the dimensions of its rows, columns, inner loop, repeats.

    Its inner loop is as long as the weight, of ``size`` bytes an element, has elements for a column: those of
    a convolution's window among them.
    """
    weight = max(operator.parameters, key=lambda operand: len(operand.dims), default=None)
    if operator.kind not in PRODUCTS or weight is None or len(weight.dims) < 2:
        return None
    read = {name for operand in operator.operands if operand.parameter < 0 for name in operand.dims}
    rows = [name for name in operator.output if name not in weight.dims]
    repeated = [name for name in operator.output if name in weight.dims and name in read]
    columns = [name for name in operator.output if name in weight.dims and name not in read]
    m, n, repeats = (math.prod(operator.size[name] for name in names) for names in (rows, columns, repeated))
    inside = [name for name in operator.contracted if name not in repeated]
    return PartShape(m, n, weight.bytes / size / (n * repeats), repeats), (rows, columns, inside, repeated)


def share_parts(parts: int, loss: float) -> float:
    """Return into how many parts the work is divided that takes as long as one with ``loss``."""
    return parts if loss == 1.0 else parts / loss
