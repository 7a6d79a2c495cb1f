"""Reads what torch's profiler recorded: bytes live in the CPU allocator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.core.errors import LabError

MEMORY = "[memory]"


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
