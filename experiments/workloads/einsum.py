"""Operators of a model as loops over named dimensions: what planners divide among devices.

An operator walks ``sizes`` (its loop dimensions); ``output`` names those that its result has. The others are
summed over: a device that has a part of one holds a partial sum (``contracted``), unless they are
``statistics`` (a softmax or a norm needs a small result of the whole dimension, then goes on with its own
part) or ``whole`` (cannot be divided at all). Names are local: an operand lists, for each dimension of the
tensor as its producer made it, the loop dimension that walks it here, or ``""`` where it is needed whole. So
``qkv`` may make a dimension of 2304 that attention walks as 12 heads. Bytes and FLOPs are those of the whole
batch, forward pass.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

#: Kinds whose FLOPs matter; every other kind is light and follows one of its operands.
HEAVY_KINDS = ("einsum", "convolution", "attention", "embedding", "layer")


@dataclass(frozen=True)
class Operand:
    """A tensor that an operator reads.

    It is the result of operator ``source``, parameter number ``parameter`` (shared by tied ones), or, where
    both are -1, an input of the model.
    """

    dims: tuple[str, ...]
    bytes: float
    source: int = -1
    parameter: int = -1


@dataclass(frozen=True)
class Operator:
    """One operator of layer ``layer`` of a LayerGraph.

    ``halo`` are elements needed beyond the own part of a dimension on each inner border. ``share`` is the
    part of its layer's time that it takes; ``stash_bytes`` is what of its output is kept for the backward
    pass. ``function`` is what it computes, where the source tells (``relu``, ``mm``).
    """

    name: str
    kind: str
    layer: int
    sizes: tuple[tuple[str, int], ...]
    output: tuple[str, ...]
    operands: tuple[Operand, ...]
    output_bytes: float
    stash_bytes: float = 0.0
    flops: float = 0.0
    share: float = 1.0
    statistics: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    halo: tuple[tuple[str, int], ...] = ()
    function: str = ""

    @functools.cached_property
    def size(self) -> Mapping[str, int]:
        return MappingProxyType(dict(self.sizes))

    @property
    def light(self) -> bool:
        return self.kind not in HEAVY_KINDS

    @property
    def contracted(self) -> tuple[str, ...]:
        """Dimensions whose division leaves partial sums of the output."""
        gone = {*self.output, *self.statistics, *self.whole}
        return tuple(name for name, _ in self.sizes if name not in gone)

    @property
    def divisible(self) -> tuple[str, ...]:
        """Dimensions that devices may divide among them."""
        return tuple(name for name, size in self.sizes if name not in self.whole and size > 1)

    @property
    def parameters(self) -> tuple[Operand, ...]:
        return tuple(operand for operand in self.operands if operand.parameter >= 0)
