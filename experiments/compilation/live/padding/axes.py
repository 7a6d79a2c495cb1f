"""Where a padded axis lies in a tensor, and what ops that only move elements do to it.

The axis has ``n`` entries, the first ones useful. In a tensor's dimension it may stand between others that
were merged with it: element ``p`` of a dimension of size ``outer * n * inner`` belongs to entry ``p // inner
% n``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


class Leak(Exception):
    """Why padding would change a useful result."""


@dataclass(frozen=True, slots=True)
class PaddedAxis:
    outer: int = 1
    inner: int = 1

    def size(self, entries: int) -> int:
        return self.outer * entries * self.inner


#: One entry for each dimension of a tensor; ``None`` where it is not padded.
Axes = tuple[PaddedAxis | None, ...]
Shape = tuple[int, ...]


def plain(rank: int) -> Axes:
    return (None,) * rank


def new_axes(shape: Shape, entries: int, before: Shape, entries_before: int) -> Axes:
    """Of a tensor made from its sizes alone, by how they change with the number of entries."""
    found: list[PaddedAxis | None] = []
    for size, other in zip(shape, before, strict=True):
        if size == other:
            found.append(None)
        elif (size, other) == (entries, entries_before):
            found.append(PaddedAxis())
        else:
            raise Leak(f"a size of {size} for {entries} entries and {other} for {entries_before}")
    return tuple(found)


def broadcast(all_axes: Sequence[Axes], rank: int) -> Axes:
    """Of an element-wise op: dimensions are aligned at the end, and each is padded in one way only."""
    found: list[PaddedAxis | None] = [None] * rank
    for axes in all_axes:
        for place, axis in enumerate(axes, start=rank - len(axes)):
            if axis is None:
                continue
            if found[place] not in (None, axis):
                raise Leak("two tensors are padded in different places of one dimension")
            found[place] = axis
    return tuple(found)


def reshape_axes(shape: Shape, axes: Axes, into: Shape, entries: int) -> Axes:
    """Of a view of the same elements in the same order."""
    found: list[PaddedAxis | None] = [None] * len(into)
    for place, axis in enumerate(axes):
        if axis is None:
            continue
        step = axis.inner * math.prod(shape[place + 1 :])
        target, new = _dimension(into, step, entries)
        if found[target] is not None:
            raise Leak("two padded dimensions are merged")
        found[target] = new
    return tuple(found)


def _dimension(shape: Shape, step: int, entries: int) -> tuple[int, PaddedAxis]:
    """Return the dimension of ``shape`` that holds ``entries`` at distance ``step`` of each other."""
    below = 1
    for place in reversed(range(len(shape))):
        above = below * shape[place]
        if below <= step and step * entries <= above and shape[place] > 1:
            if step % below or above % (step * entries):
                break
            return place, PaddedAxis(above // (step * entries), step // below)
        below = above
    raise Leak("a view splits the padded dimension")
