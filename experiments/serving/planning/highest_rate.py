"""The highest load at which a system still does what is wanted, by doubling and then bisecting."""

from __future__ import annotations

import math
from collections.abc import Callable

#: Simulations of a search, and by how much of itself the load is then known.
MOST_TRIALS, PRECISION = 12, 0.02


def find_highest(attains: Callable[[float], bool], start: float = 1.0, precision: float = PRECISION) -> float:
    """Return the highest load that ``attains``; 0 for none.

    From ``start`` the load is doubled or halved until it brackets the answer, then bisected.
    """
    low, high, load = 0.0, math.inf, start
    for _ in range(MOST_TRIALS):
        if attains(load):
            low = load
        else:
            high = load
        if high < math.inf and high - low <= precision * high:
            break
        load = 2 * low if high == math.inf else (low + high) / 2
    return low
