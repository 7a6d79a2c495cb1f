"""Tensor expressions: loops over spatial and reduced axes, and the elements that each point touches.

Loops over spatial and reduced axes, and for each tensor which element a point of them touches.

The form that Roller (OSDI'22, section 3) and Welder (OSDI'23, section 4) start from. Sizes of a tile are one
number for each axis, spatial axes first; elements and bytes of what a tile touches follow from the index maps
alone.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.core.units import DTYPE_BYTES

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class LoopAxis:
    """One loop of ``extent`` points."""

    name: str
    extent: int


@dataclass(frozen=True)
class Index:
    """One dimension of a tensor, ``extent`` long, as a sum of coefficient x axis (``terms`` by axis name).

    Constants (padding) only shift what is touched and are left out.
    """

    extent: int
    terms: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class TensorAccess:
    """A tensor that an expression reads or writes.

    One ``Index`` for each dimension, the last contiguous in memory.

    ``repeats``: how often each element of the stored tensor stands in the (virtual) tensor described, as in
    the matrix that a convolution's windows make.
    """

    tensor: str
    indices: tuple[Index, ...]
    dtype: str = "float32"
    repeats: float = 1.0

    @property
    def element_bytes(self) -> int:
        return DTYPE_BYTES[self.dtype]

    @functools.cached_property
    def shape(self) -> Sizes:
        return tuple(index.extent for index in self.indices)


@dataclass(frozen=True)
class Expression:
    """Tensor expression ``output[...] = reduce over reduced axes of f(inputs[...])``.

    ``flops`` is for each point of all axes. ``rowwise`` expressions (softmax, normalization) write whole rows
    along their reduced axes: these stand in the output's indices too.
    """

    name: str
    kind: str
    spatial: tuple[LoopAxis, ...]
    reduced: tuple[LoopAxis, ...]
    inputs: tuple[TensorAccess, ...]
    output: TensorAccess
    flops: float

    @functools.cached_property
    def axes(self) -> tuple[LoopAxis, ...]:
        return self.spatial + self.reduced

    @functools.cached_property
    def extents(self) -> Sizes:
        return tuple(axis.extent for axis in self.axes)

    @functools.cached_property
    def domain(self) -> Sizes:
        """Extents of the spatial axes."""
        return tuple(axis.extent for axis in self.spatial)

    @functools.cached_property
    def reduction(self) -> Sizes:
        """Extents of the reduced axes."""
        return tuple(axis.extent for axis in self.reduced)

    @property
    def dtype(self) -> str:
        """The type that is computed in: that of the first input."""
        return self.inputs[0].dtype if self.inputs else self.output.dtype

    @property
    def rowwise(self) -> bool:
        reduced = {axis.name for axis in self.reduced}
        return any(name in reduced for index in self.output.indices for name, _ in index.terms)

    @functools.cached_property
    def _maps(self) -> dict[int, tuple[tuple[int, tuple[tuple[int, int], ...]], ...]]:
        """For every access (by identity) and dimension its extent and its terms by axis position."""
        position = {axis.name: index for index, axis in enumerate(self.axes)}
        return {
            id(access): tuple(
                (index.extent, tuple((position[name], factor) for name, factor in index.terms))
                for index in access.indices
            )
            for access in self.accesses
        }

    @functools.cached_property
    def accesses(self) -> tuple[TensorAccess, ...]:
        """Inputs, then the output."""
        return (*self.inputs, self.output)

    @functools.cached_property
    def _weighted_maps(self) -> tuple[tuple[tuple[tuple[int, tuple[tuple[int, int], ...]], ...], int], ...]:
        """The maps of all accesses with the bytes of an element."""
        return tuple((self._maps[id(access)], access.element_bytes) for access in self.accesses)

    def whole(self, spatial: Sequence[int]) -> Sizes:
        """Return sizes of a spatial tile that runs over the whole reduction."""
        return (*spatial, *self.reduction)

    def extents_touched(self, access: TensorAccess, sizes: Sizes) -> Sizes:
        """Return a tile's extent along each dimension of ``access``, from first to last element."""
        found = []
        for extent, terms in self._maps[id(access)]:
            box = 1
            for axis, factor in terms:
                box += factor * (sizes[axis] - 1)
            found.append(box if box < extent else extent)
        return tuple(found)

    def elements(self, access: TensorAccess, sizes: Sizes) -> int:
        """Return the elements of ``access`` that a tile needs: its box without what strides leave out."""
        return _count_needed(self._maps[id(access)], sizes)

    def gaps(self, access: TensorAccess, sizes: Sizes) -> float:
        """Return elements passed over for each one needed along the contiguous dimension.

        What a stride leaves out.
        """
        if not access.indices:
            return 1.0
        last = self._maps[id(access)][-1:]
        return self.extents_touched(access, sizes)[-1] / _count_needed(last, sizes)

    def work(self, sizes: Sizes) -> float:
        """Return FLOPs of a tile."""
        return self.flops * math.prod(sizes)

    def bytes(self, sizes: Sizes) -> int:
        """Return bytes that a tile reads and writes."""
        return sum(_count_needed(maps, sizes) * element for maps, element in self._weighted_maps)

    def intensity(self, spatial: Sequence[int]) -> float:
        """FLOP for each byte of a spatial tile over the whole reduction: Roller's data reuse."""
        sizes = self.whole(spatial)
        return self.work(sizes) / self.bytes(sizes)

    def axes_of(self, access: TensorAccess) -> frozenset[int]:
        """Return positions of the axes that ``access`` is indexed by."""
        return frozenset(axis for _, terms in self._maps[id(access)] for axis, _ in terms)

    @functools.cached_property
    def column_reads(self) -> tuple[TensorAccess, ...]:
        """Inputs whose contiguous dimension is reduced over.

        The threads of a warp read a column of their tile.
        """
        spatial = len(self.spatial)
        return tuple(
            access
            for access in self.inputs
            if (last := self._maps[id(access)][-1][1]) and all(axis >= spatial for axis, _ in last)
        )


def _count_needed(maps: tuple[tuple[int, tuple[tuple[int, int], ...]], ...], sizes: Sizes) -> int:
    count = 1
    for extent, terms in maps:
        if len(terms) == 1 and terms[0][1] == 1:
            own = sizes[terms[0][0]]
            count *= own if own < extent else extent
            continue
        box, points = 1, 1
        for axis, factor in terms:
            box += factor * (sizes[axis] - 1)
            points *= sizes[axis]
        count *= min(extent, box, points)
    return count
