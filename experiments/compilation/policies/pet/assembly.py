"""A program of several operators, or a region of it, as ops of a graph."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from experiments.compilation.interface import Draft, Ref
from experiments.compilation.policies.pet.multilinear import (
    Convolved,
    Input,
    Multilinear,
    Product,
    Sum,
)
from experiments.compilation.policies.pet.rearranged import (
    Composed,
    Flipped,
    Joined,
    MergedRows,
    Permuted,
    SplitRows,
)
from experiments.compilation.policies.pet.regions import Region

Span = tuple[int, int]


class ProgramLowering:
    """Ops for programs over ``inputs``; what depends on ``constants`` (their numbers) alone is made once."""

    def __init__(self, draft: Draft, inputs: Sequence[Ref], constants: Collection[int] = ()) -> None:
        self._draft, self._inputs, self._constants = draft, inputs, frozenset(constants)
        self._made: dict[Multilinear, Ref] = {}

    def lower(self, program: Multilinear) -> Ref:
        """Return the whole program's result."""
        if isinstance(program, Input):
            return self._inputs[program.number]
        if program not in self._made:
            self._made[program] = self._lower(program)
        return self._made[program]

    def _lower(self, program: Multilinear) -> Ref:
        if isinstance(program, Composed):
            return self.lower(program.convolution)
        below = [self.lower(source) for source in program.sources]
        if isinstance(program, Product):
            return self._op(program, "aten.matmul.default", *below)
        if isinstance(program, Convolved):
            return self._convolve(program, below[0], below[1], program.padding)
        if isinstance(program, Sum):
            return self._op(program, "aten.add.Tensor", *below)
        if isinstance(program, Joined):
            return self._op(program, "aten.cat.default", tuple(below), program.axis)
        return self._rearrange(program, below[0])

    def _rearrange(self, program: Multilinear, below: Ref) -> Ref:
        if isinstance(program, Permuted):
            return self._op(program, "aten.permute.default", below, program.axes)
        if isinstance(program, Flipped):
            return self._op(program, "aten.flip.default", below, (2, 3))
        assert isinstance(program, MergedRows | SplitRows)
        return self._op(program, "aten.reshape.default", below, program.shape)

    def _op(self, program: Multilinear, target: str, *arguments: object) -> Ref:
        once = set(program.leaves) <= self._constants
        return self._draft.op(target, *arguments, once=once)  # type: ignore[arg-type]

    def _convolve(self, program: Convolved, source: Ref, weight: Ref, padding: Span) -> Ref:
        settings = (program.stride, padding, program.dilation)
        return self._op(program, "aten.conv2d.default", source, weight, None, *settings)

    def correct(self, result: Ref, original: Multilinear, wrong: Sequence[Region]) -> Ref:
        """Return ``result`` with every wrong region computed as the original does.

        It reads no more than these need.
        """
        for region in wrong:
            result = self._write(result, self.window(original, region), region)
        return result

    def window(self, program: Multilinear, region: Region) -> Ref:
        """Return a region of a program's result, zeros where it reaches over it."""
        known = tuple(
            (max(start, 0), min(stop, size))
            for (start, stop), size in zip(region, program.shape, strict=True)
        )
        found = self._region(program, known)
        around = [
            (inner[0] - outer[0], outer[1] - inner[1]) for inner, outer in zip(known, region, strict=True)
        ]
        if not any(map(any, around)):
            return found
        pads = tuple(size for pair in reversed(around) for size in pair)
        return self._draft.op("aten.constant_pad_nd.default", found, pads)

    def _region(self, program: Multilinear, region: Region) -> Ref:
        if region == tuple((0, size) for size in program.shape):
            return self.lower(program)
        if isinstance(program, Product):
            return self._product(program, region)
        if isinstance(program, Sum):
            below = [self.window(source, region) for source in program.sources]
            return self._draft.op("aten.add.Tensor", *below)
        if isinstance(program, Permuted):
            spans = dict(zip(program.axes, region, strict=True))
            source = self.window(program.source, tuple(spans[axis] for axis in sorted(spans)))
            return self._draft.op("aten.permute.default", source, program.axes)
        if isinstance(program, Convolved):
            return self._convolved_region(program, region)
        return self._cut(self.lower(program), region, program.shape)

    def _product(self, program: Product, region: Region) -> Ref:
        """Rows of the left operand by columns of the right one."""
        *batch, rows, columns = region
        whole = (0, program.left.shape[-1])
        shared = batch if len(program.right.shape) > 2 else []
        left = self.window(program.left, (*batch, rows, whole))
        right = self.window(program.right, (*shared, whole, columns))
        return self._draft.op("aten.matmul.default", left, right)

    def _convolved_region(self, program: Convolved, region: Region) -> Ref:
        """Rows and columns that the region's windows read, of its images, by its filters."""
        images, filters, *spans = region
        read = [self._read(program, axis, span) for axis, span in enumerate(spans)]
        channels = (0, program.source.shape[1])
        source = self.window(program.source, (images, channels, *read))
        rest = tuple((0, size) for size in program.weight.shape[1:])
        return self._convolve(program, source, self.window(program.weight, (filters, *rest)), (0, 0))

    @staticmethod
    def _read(program: Convolved, axis: int, span: Span) -> Span:
        start, stop = span
        reach = program.dilation[axis] * (program.weight.shape[2 + axis] - 1)
        first = start * program.stride[axis] - program.padding[axis]
        return first, (stop - 1) * program.stride[axis] - program.padding[axis] + reach + 1

    def _cut(self, source: Ref, region: Region, shape: Sequence[int]) -> Ref:
        for axis, (start, stop) in enumerate(region):
            if (start, stop) != (0, shape[axis]):
                source = self._draft.op("aten.slice.Tensor", source, axis, start, stop)
        return source

    def _write(self, result: Ref, patch: Ref, region: Region) -> Ref:
        """Return the patch in its place.

        Scattered into the innermost slice, that into the next, and so on.
        """
        shape = self._draft.type(result).shape
        partial = [(axis, span) for axis, span in enumerate(region) if span != (0, shape[axis])]
        outer = [result][: len(partial)]
        for axis, (start, stop) in partial[:-1]:
            outer.append(self._draft.op("aten.slice.Tensor", outer[-1], axis, start, stop))
        for (axis, (start, stop)), whole in zip(reversed(partial), reversed(outer), strict=True):
            patch = self._draft.op("aten.slice_scatter.default", whole, patch, axis, start, stop)
        return patch
