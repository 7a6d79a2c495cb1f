"""The time that each model of a query gets of the query's objective (Nexus, section 6.2).

Dynamic programming over the tree of models and the time that is left, in equal steps:
f(u, t) = min over k <= t of rate(u) / throughput(u, k) + sum over children v of f(v, t - k), where
throughput(u, k) is that of the largest batch of which two passes take k: the devices that the query needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

#: Steps into which an objective is divided.
STEPS = 100
#: ``devices(model, seconds)`` that its rate needs with so much time; infinite: not within it.
Devices = Callable[[int, float], float]


def split_query(
    root: int, children: Sequence[Sequence[int]], objective: float, devices: Devices, steps: int = STEPS
) -> dict[int, float]:
    """Return the seconds of each model of the query, whose sum along every path is at most ``objective``."""
    step = objective / steps
    costs: dict[int, list[float]] = {}
    chosen: dict[int, list[int]] = {}
    for model in _children_first(root, children):
        own = [devices(model, k * step) if k else math.inf for k in range(steps + 1)]
        below = [math.fsum(costs[child][t] for child in children[model]) for t in range(steps + 1)]
        costs[model], chosen[model] = [], []
        for t in range(steps + 1):
            best = min(range(t + 1), key=lambda k, t=t: (own[k] + below[t - k], k))  # type: ignore[misc]
            costs[model].append(own[best] + below[t - best])
            chosen[model].append(best)
    found: dict[int, float] = {}
    waiting = [(root, steps)]
    while waiting:
        model, left = waiting.pop()
        found[model] = chosen[model][left] * step
        waiting += [(child, left - chosen[model][left]) for child in children[model]]
    return found


def _children_first(root: int, children: Sequence[Sequence[int]]) -> list[int]:
    order = [root]
    for model in order:
        order += children[model]
    return order[::-1]
