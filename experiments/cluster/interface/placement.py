"""The rules that choose nodes for a gang of whole devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.cluster.interface.jobs import Demand
    from experiments.cluster.interface.pool import Pool

#: Nodes in the order in which their devices are taken, of which node ``n`` gives ``room[n]``; ``None``: wait.
Rule = Callable[["Pool", "Demand", Sequence[int]], Sequence[int] | None]


def _first_fit(pool: Pool, demand: Demand, room: Sequence[int]) -> Sequence[int]:
    """Any free devices, lowest node first: only their number decides ("counting GPUs only")."""
    return range(len(room))


def _pack(pool: Pool, demand: Demand, room: Sequence[int]) -> Sequence[int]:
    """Best fit: the fullest node that holds all; else as few nodes as possible, emptiest first."""
    best, least = -1, 0
    for node, free in enumerate(room):
        if free >= demand.gpus and (best < 0 or free < least):
            best, least = node, free
    return (best,) if best >= 0 else _spread(pool, demand, room)


def _consolidate(pool: Pool, demand: Demand, room: Sequence[int]) -> Sequence[int] | None:
    """As ``pack``, but the job waits until it fits on the fewest nodes that could ever hold it.

    Nodes of another type, or with too few processors, never do.
    """
    order = _pack(pool, demand, room)
    most: Sequence[int] = pool.capacity
    if not demand.is_plain:
        most = [pool.room_of_empty(node, demand) for node in range(len(most))]
    most, fewest, left = sorted(most, reverse=True), 0, demand.gpus
    while left > 0:
        if fewest == len(most):
            return None
        left -= most[fewest]
        fewest += 1
    return order if sum(room[node] for node in order[:fewest]) >= demand.gpus else None


def _spread(pool: Pool, demand: Demand, room: Sequence[int]) -> Sequence[int]:
    """Emptiest nodes first."""
    return sorted(range(len(room)), key=lambda node: -room[node])


def _buddy(pool: Pool, demand: Demand, room: Sequence[int]) -> Sequence[int]:
    """The fullest node that holds all; else whole empty nodes, and what is left over as a job of its own.

    Of jobs whose sizes are powers of two, the larger ones placed first, none is ever scattered.
    """
    gpus = demand.gpus
    best = _fullest(gpus, room)
    if best is not None:
        return (best,)
    whole: list[int] = []
    for node, free in enumerate(room):
        if 0 < free == pool.capacity[node] <= gpus:
            whole.append(node)
            gpus -= free
    left = [0 if node in whole else free for node, free in enumerate(room)]
    rest = _fullest(gpus, left) if gpus else None
    others = [rest] if rest is not None else [node for node in _spread(pool, demand, left) if left[node]]
    return (*whole, *others)


def _fullest(gpus: int, room: Sequence[int]) -> int | None:
    """The node with the least room that is enough."""
    fits = [node for node, free in enumerate(room) if free >= gpus]
    return min(fits, key=lambda node: room[node], default=None)


def _least_used(pool: Pool, demand: Demand, room: Sequence[int]) -> Sequence[int]:
    """Nodes of which the least part is in use first: the mean over devices and processors."""

    def used(node: int) -> float:
        cpus, slots = pool.machines[node].cpus, pool.machines.sizes[node]
        parts = [1 - pool.free[node] / slots] if slots else []
        parts += [1 - pool.cpus[node] / cpus] if math.isfinite(cpus) and cpus else []
        return sum(parts) / len(parts) if parts else 0.0

    return sorted(range(len(room)), key=used)


PLACEMENTS: dict[str, Rule] = {
    "count": _first_fit,
    "pack": _pack,
    "consolidate": _consolidate,
    "spread": _spread,
    "buddy": _buddy,
    "least used": _least_used,
}
