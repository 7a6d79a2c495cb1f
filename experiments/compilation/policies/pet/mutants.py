"""Programs that might replace a convolution.

The input is laid out otherwise, convolved once, and laid back (PET, OSDI 2021, section 4).

A layout is a chain of changes: images joined along height or width (with or without a gap), every d-th row
and column as an image of its own (a dilated convolution becomes a plain one), height and width exchanged. A
mutant is kept if it has the original's shape; whether it is right is for ``boxes`` to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

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
    Shape,
    Swap,
    Unfold,
    WindowAxes,
)


@dataclass(frozen=True)
class Side:
    """Images joined: ``count`` of them along ``axis``, ``gap`` zeros behind each."""

    axis: int
    count: int
    gap: int = 0

    def __str__(self) -> str:
        behind = f" with gaps of {self.gap}" if self.gap else ""
        return f"{self.count} images along {'height' if self.axis == HEIGHT else 'width'}{behind}"


@dataclass(frozen=True)
class Apart:
    """Every ``step``-th row and column as an image of its own."""

    step: int

    def __str__(self) -> str:
        return f"every {self.step}. row and column apart"


@dataclass(frozen=True)
class Swapped:
    def __str__(self) -> str:
        return "height and width exchanged"


Change = Side | Apart | Swapped


@dataclass(frozen=True)
class Mutant:
    """The program and the changes of layout that it makes."""

    program: Expression
    changes: tuple[Change, ...]

    def __str__(self) -> str:
        return ", then ".join(map(str, self.changes))


def mutants(original: Convolution, depth: int) -> Iterator[Mutant]:
    """Yield all mutants of up to ``depth`` changes that have the original's shape."""
    assert isinstance(original.source, Image)
    for changes in _chains(original.source.shape, original, depth):
        program = mutant(original, changes)
        if program is not None and program.shape == original.shape:
            yield Mutant(program, changes)


def _chains(shape: Shape, original: Convolution, depth: int) -> Iterator[tuple[Change, ...]]:
    if not depth:
        return
    for change in _choices(shape, original):
        yield (change,)
        below = _laid(Image(shape), change).shape
        inner = replace(original, source=Image(below), **_parameters(original, change))
        for rest in _chains(below, inner, depth - 1):
            if not isinstance(rest[0], type(change)) or isinstance(change, Side):
                yield (change, *rest)


def _choices(shape: Shape, original: Convolution) -> Iterator[Change]:
    """Changes that make sense for a convolution of an image of this shape."""
    batch = shape[BATCH]
    for axis in (WIDTH, HEIGHT):
        gaps = {0, original.padding[axis - HEIGHT]}
        for count in sorted({2, batch}):
            if count > 1 and batch % count == 0:
                yield from (Side(axis, count, gap) for gap in sorted(gaps))
    step = original.dilation[0]
    if step > 1 and original.dilation == (step, step) and original.stride == (1, 1):
        yield Apart(step)
    if original.kernel[0] != original.kernel[1] or shape[HEIGHT] != shape[WIDTH]:
        yield Swapped()


def _parameters(original: Convolution, change: Change) -> dict[str, Any]:
    """Return those of the convolution behind the change."""
    if isinstance(change, Apart):
        padding = tuple(-(-p // change.step) for p in original.padding)
        return {"dilation": (1, 1), "padding": padding}
    if isinstance(change, Swapped):
        swapped = {name: getattr(original, name)[::-1] for name in ("stride", "padding", "dilation")}
        return {**swapped, "transposed": not original.transposed}
    return {}


def _laid(source: Expression, change: Change) -> Expression:
    """Return the image laid out otherwise."""
    if isinstance(change, Swapped):
        return Swap(source)
    if isinstance(change, Apart):
        for axis in (HEIGHT, WIDTH):
            size = -(-source.shape[axis] // change.step) * change.step
            source = source if size == source.shape[axis] else WindowAxes(source, axis, 0, size)
        return Scatter(source, change.step)
    if change.gap:
        source = WindowAxes(source, change.axis, 0, source.shape[change.axis] + change.gap)
    return Fold(source, change.axis, change.count)


def _back(result: Expression, change: Change, original: Convolution) -> Expression | None:
    """Return the result laid back and cut to the original's size; ``None`` where it cannot be."""
    if isinstance(change, Swapped):
        result = Swap(result)
    elif isinstance(change, Apart):
        result = Gather(result, change.step)
        for axis in (HEIGHT, WIDTH):  # padding was rounded up: what that added in front is cut off
            a = axis - HEIGHT
            surplus = -(-original.padding[a] // change.step) * change.step - original.padding[a]
            result = _cut(result, axis, surplus, original.shape[axis])
    else:
        if result.shape[change.axis] % change.count:
            return None
        result = Unfold(result, change.axis, change.count)
    for axis in (HEIGHT, WIDTH):
        result = _cut(result, axis, 0, original.shape[axis])
    return result


def _cut(source: Expression, axis: int, first: int, size: int) -> Expression:
    whole = not first and source.shape[axis] <= size
    return source if whole else WindowAxes(source, axis, first, min(size, source.shape[axis] - first))


def mutant(original: Convolution, changes: tuple[Change, ...]) -> Expression | None:
    """Return the original with its input laid out by ``changes``.

    ``None`` where a result cannot be laid back.
    """
    levels = [original]
    source: Expression = original.source
    for change in changes:
        source = _laid(source, change)
        outer = levels[-1]
        shown = replace(outer, source=Image(_laid(Image(outer.source.shape), change).shape))
        levels.append(replace(shown, **_parameters(outer, change)))
    result: Expression | None = replace(levels[-1], source=source)
    for change, outer in zip(reversed(changes), reversed(levels[:-1]), strict=True):
        if result is None or min(result.shape) < 1:
            return None
        result = _back(result, change, outer)
    return result
