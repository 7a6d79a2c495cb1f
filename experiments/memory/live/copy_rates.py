"""How fast this CPU makes the copies that a plan asks for, measured with the code that makes them.

A copy back is the slower one: the storage grows again, and its pages are new to the process. The first decile
counts, with one thread where that is faster: on a busy host the threads of a copy wait for each other for
whole slices of the scheduler, which would tell of that moment and not of the copy.
"""

from __future__ import annotations

import functools
import time

import numpy as np
import torch

from experiments.memory.interface import CopyRate
from experiments.memory.live.copies import HostCopies
from experiments.memory.live.ledger import Ledger
from experiments.workloads.step import Floats

#: Bytes of a copy that is all overhead, of one that is all bandwidth, and of how many: more than caches hold.
SMALL, LARGE = 4096, 4 << 20
TENSORS, ROUNDS = 32, 6


@functools.cache
def copy_rates() -> tuple[CopyRate, CopyRate]:
    """To host memory and back."""
    threads = torch.get_num_threads()
    try:
        rates = [_rates(count) for count in sorted({1, threads})]
    finally:
        torch.set_num_threads(threads)
    out, back = (max(each, key=lambda rate: rate.bandwidth) for each in zip(*rates, strict=True))
    return out, back


def _rates(threads: int) -> tuple[CopyRate, CopyRate]:
    """Out and back with so many threads."""
    torch.set_num_threads(threads)
    pairs = zip(_seconds(LARGE), _seconds(SMALL), strict=True)
    out, back = (CopyRate(LARGE / max(slow - fast, 1e-9), fast) for slow, fast in pairs)
    return out, back


def _seconds(size: int) -> tuple[float, float]:
    """Seconds of a copy out with its release, and of one back; buffers are warm, as in a second step."""
    copies = HostCopies(Ledger())
    storages = [torch.ones(size, dtype=torch.uint8).untyped_storage() for _ in range(TENSORS)]
    rounds = [_round(copies, storages) for _ in range(ROUNDS + 1)][1:]
    out, back = (np.concatenate(times) for times in zip(*rounds, strict=True))
    return float(np.quantile(out, 0.1)), float(np.quantile(back, 0.1))


def _round(copies: HostCopies, storages: list[torch.UntypedStorage]) -> tuple[Floats, Floats]:
    """Seconds of each copy out and back when all leave and then all return."""
    marks = [time.perf_counter()]
    for tensor, storage in enumerate(storages):
        copies.offload(tensor, storage)
        copies.release(tensor, storage)
        marks.append(time.perf_counter())
    for tensor, storage in enumerate(storages):
        copies.prefetch(tensor, storage)
        copies.need(tensor)
        marks.append(time.perf_counter())
    taken = np.diff(marks)
    return taken[:TENSORS], taken[TENSORS:]
