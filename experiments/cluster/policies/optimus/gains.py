"""Who gets one more device: the job whose time left shrinks most for each (section 4.1)."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

#: Devices, and seconds of a step (or of a unit of work) on them, devices ascending.
Levels = Sequence[tuple[int, float]]


def share_out(levels: Mapping[int, Levels], left: Mapping[int, float], free: int) -> dict[int, int]:
    """Return the devices of each job of ``levels``, ``free`` in all at most.

    Each gets its first level in this order while there are enough; then one level more goes where
    ``left`` x the seconds that it saves is largest for each device, as long as anything is saved.
    """
    shares, reached = dict.fromkeys(levels, 0), dict.fromkeys(levels, 0)
    for job, steps in levels.items():
        if steps and steps[0][0] <= free:
            shares[job] = steps[0][0]
            free -= steps[0][0]
    places = {job: place for place, job in enumerate(levels)}
    waiting: list[tuple[float, int, int]] = []

    def ask(job: int) -> None:
        at = reached[job]
        if at + 1 < len(levels[job]):
            (gpus, seconds), (more, fewer_seconds) = levels[job][at : at + 2]
            gain = (seconds - fewer_seconds) * left[job] / (more - gpus)
            if gain > 0:
                heapq.heappush(waiting, (-gain, places[job], job))

    for job, gpus in shares.items():
        if gpus:
            ask(job)
    while waiting and free > 0:
        job = heapq.heappop(waiting)[2]
        more = levels[job][reached[job] + 1][0]
        if more - shares[job] > free:
            continue
        free -= more - shares[job]
        shares[job] = more
        reached[job] += 1
        ask(job)
    return shares
