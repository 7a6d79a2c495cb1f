"""Keeps full garbage collections out of a run in real time."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def freeze_heap() -> Iterator[None]:
    """Within it the garbage collector passes over everything that is older.

    A full collection walks through all that torch and the lab consist of, which takes as long as hundreds of
    steps of a small model. Whether one falls into a run is chance, and into a simulation none does. Where
    something was frozen before, all stays so.
    """
    was_frozen = gc.get_freeze_count() > 0
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if not was_frozen:
            gc.unfreeze()
