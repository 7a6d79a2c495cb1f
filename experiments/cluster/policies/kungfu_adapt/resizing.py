"""A running job's gang with twice its devices, or with half of them."""

from __future__ import annotations

from experiments.cluster.interface import Devices, Gang, Machines, Pool


def doubled(gang: Gang, pool: Pool) -> Devices | None:
    """Its devices and as many free ones, of its own nodes first, then of the emptiest; ``None``: too few."""
    if pool.total < gang.size:
        return None
    own = dict(pool.machines.by_node(gang.devices))
    order = sorted(range(len(pool.free)), key=lambda node: (-own.get(node, 0), -pool.free[node], node))
    more = [device for node in order for device in pool.free_devices(node)]
    return tuple(sorted((*gang.devices, *more[: gang.size])))


def halved(gang: Gang, machines: Machines) -> Devices:
    """The half of its devices that lies on the fewest nodes."""
    own = dict(machines.by_node(gang.devices))
    order = sorted(gang.devices, key=lambda device: (-own[machines.node_of[device]], device))
    return tuple(sorted(order[: gang.size // 2]))
