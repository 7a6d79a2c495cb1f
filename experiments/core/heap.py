"""What a process that trains or serves for real does with memory that it frees, and when it looks for it."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

#: Parameters of mallopt(3), and the most that each may be: 32 MiB by glibc, and what a C int holds.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_MOST_TRIMMED, _MOST_IN_HEAP = 2**31 - 1, 32 * 2**20


def keep_freed_memory() -> None:
    """Have this process and what it forks keep freed memory for the next step and not return it to Linux.

    glibc returns what is free at the end of its heap. Whether a step's tensors lie there is chance: where
    they do, every step maps them anew, page by page, and takes up to twice as long as in another process of
    the same program. Blocks above 32 MiB are still mapped each time. Where the C library is not glibc nothing
    changes.
    """
    if sys.platform != "linux":
        return
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(_MMAP_THRESHOLD, _MOST_IN_HEAP)
        mallopt(_TRIM_THRESHOLD, _MOST_TRIMMED)


def freeze_for_good() -> None:
    """From now on the garbage collector passes over all that is there.

    A full collection walks through all that torch and the lab consist of.
    """
    gc.collect()
    gc.freeze()


@contextmanager
def freeze_heap() -> Iterator[None]:
    """Within it the garbage collector passes over everything that is older.

    A full collection takes as long as hundreds of steps of a small model. Whether one falls into a run is
    chance, and into a simulation none does. Where something was frozen before, all stays so.
    """
    was_frozen = gc.get_freeze_count() > 0
    freeze_for_good()
    try:
        yield
    finally:
        if not was_frozen:
            gc.unfreeze()
