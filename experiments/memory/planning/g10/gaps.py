"""Gaps: the stretches of a step in which a tensor exists but no op touches it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from experiments.memory.interface.paged import PagedStep
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats


@dataclass(frozen=True)
class Gaps:
    """Columns over the gaps, by tensor and then by start.

    A global tensor's gap around the step's end comes last.

    A gap holds the ops ``[start, end)``; a *looped* one ``[start, ops)`` and, in the next step, ``[0, end)``.
    ``duration`` is in microseconds.
    """

    tensor: Ints
    start: Ints
    end: Ints
    looped: npt.NDArray[np.bool_]
    duration: Floats
    bytes: Ints

    def __len__(self) -> int:
        return len(self.tensor)

    @functools.cached_property
    def area(self) -> Floats:
        """Bytes times microseconds of each gap."""
        return self.duration * self.bytes


def paged_gaps(paged: PagedStep) -> Gaps:
    """All gaps of all tensors but the transient ones."""
    rows = [
        (tensor, start, end, looped)
        for tensor in range(paged.tensors)
        if not paged.transient[tensor]
        for start, end, looped in _gaps(paged, tensor)
    ]
    tensor, start, end, looped = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    wraps = looped.astype(bool)
    clock = paged.clock
    duration = clock[end] - clock[start]
    duration[wraps] = clock[-1] - clock[start[wraps]] + clock[end[wraps]]
    return Gaps(tensor, start, end, wraps, duration, np.array(paged.bytes, np.int64)[tensor])


def _gaps(paged: PagedStep, tensor: int) -> list[tuple[int, int, bool]]:
    uses = paged.uses[tensor]
    found = [(a + 1, b, False) for a, b in pairwise(uses) if b > a + 1]
    if paged.is_global[tensor] and uses:
        first, last = uses[0], uses[-1]
        if last < paged.ops - 1:
            found.append((last + 1, first, True))
        elif first > 0:
            found.append((0, first, False))
    return found
