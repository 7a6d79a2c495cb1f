"""The hosts that granules of an app may go to, and the three orders in which they are filled."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from experiments.cluster.interface import Demand, Devices, Gang, Pool

#: Granules by node.
Spread = Mapping[int, int]


class Host(NamedTuple):
    """A node as one app sees it: its name, all slots, those free for it and in use, its own granules."""

    node: int
    name: str
    slots: int
    free: int
    used: int
    own: int


Order = Callable[[Host], tuple[int, ...]]


def new(host: Host) -> tuple[int, ...]:
    """Where a new app goes: most free slots, then most slots."""
    return -host.free, -host.slots


def scale(host: Host) -> tuple[int, ...]:
    """Where more granules of an app go: where it has most, then as a new one."""
    return -host.own, *new(host)


def freest(host: Host) -> tuple[int, ...]:
    """Most free slots, then most granules of the app."""
    return -host.free, *scale(host)


def fullest(host: Host) -> tuple[int, ...]:
    """Most slots in use, then as a new app."""
    return -host.used, *new(host)


def hosts_for(pool: Pool, demand: Demand, own: Spread, but: Collection[int] = ()) -> list[Host]:
    """All nodes with room ``but`` some; of equal ones the last name comes first."""
    rows = [
        Host(node, pool.machines[node].name, slots, room, slots - free, own.get(node, 0))
        for node, (slots, free) in enumerate(zip(pool.capacity, pool.free, strict=True))
        if free and node not in but and (room := pool.room(node, demand))
    ]
    return sorted(rows, key=lambda host: host.name, reverse=True)


def fill(hosts: Iterable[Host], order: Order, granules: int, *, one_host: bool = False) -> Spread | None:
    """Give hosts as many granules as they hold, in order; ``None`` where not all find a place.

    Threads of one process are on ``one_host``.
    """
    found: dict[int, int] = {}
    for host in sorted(hosts, key=order):
        if one_host and host.free < granules:
            continue
        if count := min(host.free, granules):
            found[host.node] = count
            granules -= count
        if not granules:
            return found
    return None


def links(spread: Spread) -> tuple[int, int]:
    """Hosts, and pairs of granules on different ones: the less, the better packed."""
    counts = [*spread.values()]
    return len(counts), (sum(counts) ** 2 - sum(count * count for count in counts)) // 2


def gang_on(job: int, spread: Spread, demand: Demand, pool: Pool, held: Devices = ()) -> Gang:
    """Return devices for ``spread`` that are free in ``pool``, of those ``held`` as many as possible.

    So as few granules as possible move, whichever they are.
    """
    chosen: list[int] = []
    for node, count in spread.items():
        free = pool.free_devices(node)
        kept = [device for device in held if device in free][:count]
        chosen += kept
        chosen += [device for device in free if device not in kept][: count - len(kept)]
    devices = tuple(sorted(chosen))
    return Gang(job, devices, hosts=pool.hosts_of(devices, demand))
