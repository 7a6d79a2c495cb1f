"""A mutant and its corrections as ops of a graph."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.compilation.interface import Draft, Ref
from experiments.compilation.policies.pet.boxes import Rectangle
from experiments.compilation.policies.pet.expressions import (
    BATCH,
    HEIGHT,
    WIDTH,
    Convolution,
    Expression,
    Fold,
    Gather,
    Image,
    Scatter,
    Swap,
    Unfold,
    WindowAxes,
)

CONVOLUTION = "aten.conv2d.default"


class MutantLowering:
    """Ops for expressions over the convolution ``conv2d(x, weight, bias)``."""

    def __init__(self, draft: Draft, x: Ref, weight: Ref, bias: Ref | None) -> None:
        self._draft, self._x, self._weight, self._bias = draft, x, weight, bias

    def lower(self, program: Expression) -> Ref:
        if isinstance(program, Image):
            return self._x
        assert isinstance(program, Convolution | WindowAxes | Swap | Fold | Unfold | Scatter | Gather)
        source = self.lower(program.source)
        if isinstance(program, Convolution):
            return self.convolve(source, program, program.padding)
        if isinstance(program, WindowAxes):
            first, stop = program.first, program.first + program.size
            return self.window(source, program.axis, first, stop)
        if isinstance(program, Swap):
            return self._op("aten.transpose.int", source, HEIGHT, WIDTH)
        return self._rearrange(source, program)

    def _op(self, target: str, *arguments: object) -> Ref:
        return self._draft.op(target, *arguments)  # type: ignore[arg-type]

    def convolve(self, source: Ref, program: Convolution, padding: tuple[int, int]) -> Ref:
        weight = self._weight
        if program.transposed:
            weight = self._draft.op("aten.transpose.int", weight, HEIGHT, WIDTH, once=True)
        return self._op(CONVOLUTION, source, weight, self._bias, program.stride, padding, program.dilation)

    def window(self, source: Ref, axis: int, first: int, stop: int) -> Ref:
        """Return positions ``first`` to ``stop`` of an axis, zeros where there are none."""
        size = self._draft.type(source).shape[axis]
        if (first, stop) == (0, size):
            return source
        if first > 0 or stop < size:
            source = self._op("aten.slice.Tensor", source, axis, max(first, 0), min(stop, size))
        before, behind = max(-first, 0), max(stop - size, 0)
        if not before and not behind:
            return source
        pads = (0, 0) * (3 - axis) + (before, behind)
        return self._op("aten.constant_pad_nd.default", source, pads)

    def _rearrange(self, source: Ref, program: Fold | Unfold | Scatter | Gather) -> Ref:
        batch, channels, height, width = self._draft.type(source).shape
        parts: tuple[int, ...]
        order: tuple[int, ...]
        if isinstance(program, Scatter | Gather):
            step = program.step
            if isinstance(program, Scatter):
                parts, order = (
                    (batch, channels, height // step, step, width // step, step),
                    (0, 3, 5, 1, 2, 4),
                )
            else:
                parts, order = (batch // step**2, step, step, channels, height, width), (0, 3, 4, 1, 5, 2)
        else:
            parts, order = _side_by_side(program, (batch, channels, height, width))
        apart = self._op("aten.reshape.default", source, parts)
        return self._op("aten.reshape.default", self._op("aten.permute.default", apart, order), program.shape)

    def correct(self, result: Ref, original: Convolution, wrong: Sequence[Rectangle]) -> Ref:
        """Return ``result`` with every wrong rectangle computed as the original does.

        It reads only the rows and columns that these need.
        """
        for rectangle in wrong:
            result = self._written(result, self._patch(original, rectangle), rectangle)
        return result

    def _patch(self, original: Convolution, rectangle: Rectangle) -> Ref:
        source = self.window(self._x, BATCH, *rectangle.images)
        for axis, (start, stop) in ((HEIGHT, rectangle.rows), (WIDTH, rectangle.columns)):
            a = axis - HEIGHT
            first = start * original.stride[a] - original.padding[a]
            reach = original.dilation[a] * (original.kernel[a] - 1)
            last = (stop - 1) * original.stride[a] - original.padding[a] + reach
            source = self.window(source, axis, first, last + 1)
        return self.convolve(source, original, (0, 0))

    def _written(self, result: Ref, patch: Ref, rectangle: Rectangle) -> Ref:
        """Return the patch in its place.

        Scattered into the innermost slice, that into the next, and so on.
        """
        ranges = [(BATCH, rectangle.images), (HEIGHT, rectangle.rows), (WIDTH, rectangle.columns)]
        shape = self._draft.type(result).shape
        partial = [(axis, span) for axis, span in ranges if span != (0, shape[axis])]
        outer = [result]
        for axis, (start, stop) in partial[:-1]:
            outer.append(self._op("aten.slice.Tensor", outer[-1], axis, start, stop))
        for (axis, (start, stop)), whole in zip(reversed(partial), reversed(outer), strict=True):
            patch = self._op("aten.slice_scatter.default", whole, patch, axis, start, stop)
        return patch


def _side_by_side(
    program: Fold | Unfold, shape: tuple[int, int, int, int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return axes to split a tensor into, and their order, to join images along an axis or to
    separate them.
    """
    batch, channels, height, width = shape
    count = program.count
    if isinstance(program, Fold):
        order = (0, 2, 1, 3, 4) if program.axis == HEIGHT else (0, 2, 3, 1, 4)
        return (batch // count, count, channels, height, width), order
    if program.axis == HEIGHT:
        return (batch, channels, count, height // count, width), (0, 2, 1, 3, 4)
    return (batch, channels, height, count, width // count), (0, 3, 1, 2, 4)
