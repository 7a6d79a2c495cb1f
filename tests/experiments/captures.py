"""Captures that tests share: a step of the same source is traced once in a process."""

from __future__ import annotations

import functools

from experiments.profiling import capture as capturing
from experiments.profiling.capture import Traced
from experiments.workloads.model import ModelSource
from experiments.workloads.step import Step

#: So many are kept: tests of a file ask for the same few, and one of a large model takes some MB.
KEPT = 32


class _Asked:
    """A source that a cache may have as its key: equal where all that is asked is."""

    def __init__(self, source: ModelSource) -> None:
        self.source, self.key = source, repr(source)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Asked) and self.key == other.key


@functools.lru_cache(maxsize=KEPT)
def _traced(asked: _Asked) -> Traced:
    return capturing.trace(asked.source)


@functools.lru_cache(maxsize=KEPT)
def _captured(asked: _Asked) -> Step:
    return capturing.capture(asked.source)


def trace(source: ModelSource) -> Traced:
    """Return the trace of ``source``; whoever changes its graph copies it first."""
    return _traced(_Asked(source))


def capture(source: ModelSource) -> Step:
    """Return the captured step of ``source``, which is its trace's where no blocks are counted on."""
    if capturing.few_blocks(source)[1]:
        return _captured(_Asked(source))
    return trace(source).step
