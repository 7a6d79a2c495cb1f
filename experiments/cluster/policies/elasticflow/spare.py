"""What is free beyond the reserved shares: level by level to the job whose GPU time grows least."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from experiments.workloads.profiles.throughput_table import Levels


def give_spare(
    shares: Mapping[int, int], levels: Mapping[int, Levels], left: Mapping[int, float], total: int
) -> dict[int, int]:
    """Return more GPUs for some of ``shares``, ``total`` in all at most.

    Jobs without GPUs come first, in the order of ``shares``; then a next level goes where it costs least GPU
    time for each GPU added.
    """
    given = dict(shares)
    free = total - sum(given.values())
    for job in [job for job, gpus in given.items() if not gpus]:
        first = levels[job][0][0]
        if first <= free:
            given[job], free = first, free - first
    waiting = [entry for job in given if given[job] for entry in _next_level(job, given[job], levels, left)]
    heapq.heapify(waiting)
    while waiting:
        _, job, gpus = heapq.heappop(waiting)
        if gpus - given[job] > free:
            continue
        free -= gpus - given[job]
        given[job] = gpus
        for entry in _next_level(job, gpus, levels, left):
            heapq.heappush(waiting, entry)
    return given


def _next_level(
    job: int, gpus: int, levels: Mapping[int, Levels], left: Mapping[int, float]
) -> Iterable[tuple[float, int, int]]:
    """GPU time that the next level costs for each GPU added, the job, and the level."""
    speed = dict(levels[job])
    for more, faster in levels[job]:
        if more > gpus:
            cost = left[job] * (more / faster - gpus / speed[gpus])
            yield cost / (more - gpus), job, more
            return
