"""Horovod's tensor fusion: which gradients share a buffer, by the cycle in which they are ready and by their
order.

Source: Sergeev and Del Balso, "Horovod", 2018, section 4.3, and the project's documentation of tensor fusion.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Gradient:
    """``bytes`` of one ``dtype`` that are ready on every worker after ``ready`` seconds."""

    bytes: float
    dtype: str = "float32"
    ready: float = 0.0


def departure(ready: float, cycle: float) -> float:
    """Return when the coordinator next looks.

    It is the first multiple of ``cycle`` that is not before ``ready``.
    """
    return cycle * math.ceil(ready / cycle - 1e-9) if cycle else ready


@dataclass(frozen=True)
class Buffer:
    """Numbers of the gradients that travel together, and the look at which they leave."""

    gradients: tuple[int, ...]
    leaves: float


def fuse(
    gradients: Sequence[Gradient],
    threshold: float,
    cycle: float,
    seconds: Callable[[float], float] = lambda _: 0.0,
) -> list[Buffer]:
    """Return the buffers in order of departure.

    ``seconds`` is what reducing so many bytes takes, ``gradients`` are by readiness.

    A coordinator looks every ``cycle`` and, while it reduces, not before it is done. Of what it finds ready,
    neighbors of one type are packed while they fit ``threshold`` bytes; the first that does not closes the
    buffer (none later is looked at), a larger one goes alone, and 0 fuses nothing.
    """
    found: list[Buffer] = []
    waiting, free = list(range(len(gradients))), 0.0
    while waiting:
        look = departure(max(free, gradients[waiting[0]].ready), cycle)
        ready = [number for number in waiting if gradients[number].ready <= look]
        waiting = waiting[len(ready) :]
        free = look
        for _, alike in itertools.groupby(ready, lambda number: gradients[number].dtype):
            for packed in _pack(list(alike), gradients, threshold):
                found.append(Buffer(tuple(packed), look))
                free += seconds(sum(gradients[number].bytes for number in packed))
    return found


def _pack(numbers: Sequence[int], gradients: Sequence[Gradient], threshold: float) -> Iterator[list[int]]:
    buffer: list[int] = []
    filled = 0.0
    for number in numbers:
        if buffer and filled + gradients[number].bytes > threshold:
            yield buffer
            buffer, filled = [], 0.0
        buffer.append(number)
        filled += gradients[number].bytes
    if buffer:
        yield buffer
