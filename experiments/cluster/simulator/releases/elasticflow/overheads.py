"""What restarting a job costs in the release, in seconds: constants of its authors' testbed."""

from __future__ import annotations

import math

#: Clusters from this size on start slower.
LARGE = 256
BASE, BASE_LARGE = 2, 7
#: More at each sixtieth decision, at which the trainers themselves start anew.
RESTART, RESTART_LARGE = 27, 20


def overhead(gpus: int, cluster: int, restart: bool, cached: bool = False) -> float:
    """Return the seconds that a job on ``gpus`` loses; ``cached``: these GPUs worked together before."""
    seconds = BASE_LARGE if cluster >= LARGE else BASE
    if cached:
        return seconds
    if restart:
        seconds += RESTART + (RESTART_LARGE if cluster >= LARGE else 0)
    return seconds + 2 * (math.log2(gpus) + 1)
