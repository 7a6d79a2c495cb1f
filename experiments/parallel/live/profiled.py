"""Reads what torch's profiler recorded: bytes live in the CPU allocator and bytes handed to collectives."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from experiments.core.errors import LabError

MEMORY = "[memory]"
BACKENDS = ("gloo:", "nccl:")
ELEMENT_BYTES = {
    "float": 4,
    "double": 8,
    "c10::Half": 2,
    "c10::BFloat16": 2,
    "long int": 8,
    "long": 8,
    "int": 4,
    "unsigned char": 1,
    "bool": 1,
}


def _window(events: Sequence[Any], name: str) -> tuple[int, int]:
    for event in events:
        if event.name() == name:
            return event.start_ns(), event.start_ns() + event.duration_ns()
    raise LabError(f"the profiler recorded no {name!r}")


def peak_bytes(events: Sequence[Any], name: str) -> int:
    """Most bytes live in the CPU allocator during the step ``name``.

    Exact, since the profiler saw every allocation and release of the process from before the model was built.
    """
    begin, end = _window(events, name)
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == MEMORY)
    live = peak = 0
    for moment, change in changes:
        if begin <= moment <= end:
            peak = max(peak, live, live + change)
        live += change
    return peak


def bytes_by_collective(events: Sequence[Any], name: str) -> dict[str, int]:
    """Payload bytes that this rank handed to its backend during the step ``name``, by operation."""
    begin, end = _window(events, name)
    found: Counter[str] = Counter()
    for event in events:
        kind = event.name()
        if kind.startswith(BACKENDS) and begin <= event.start_ns() <= end:
            found[kind.split(":")[1]] += _payload(event)
    return dict(sorted(found.items()))


def _payload(event: Any) -> int:
    shapes = [shape for shape in event.shapes() if shape]
    sizes = [ELEMENT_BYTES.get(dtype, 0) for dtype in event.dtypes()]
    return sum(math.prod(shape) * size for shape, size in zip(shapes, sizes, strict=False))
