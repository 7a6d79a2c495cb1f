"""Who sends what when a server sums a vector of all machines: in to it, and the sum back out.

``devices`` of a node first divide the vector among themselves (a ring reduce-scatter on the node link), then
each sends its part to the server's machine; the way back is the mirror image. What stays in the server's
machine does not use the network. Source: Jiang et al., BytePS, OSDI'20, sections 4.1 (summation service) and
5 (inside a machine). Not modeled: copies between device and host memory, and the sum itself.
"""

from __future__ import annotations

import numpy as np

from experiments.hardware.patterns import mirror, ring_reduce_scatter
from experiments.hardware.topology import Flows, Ints, Round, Topology


def to_server(devices: Ints, server: int, topology: Topology) -> list[Round]:
    """Rounds that bring all machines' vectors to ``server``. ``devices`` is sorted, as many of each node."""
    nodes = topology.node[devices]
    each = int((nodes == nodes[0]).sum())
    inside = ring_reduce_scatter(devices.reshape(-1, each), topology)
    away = devices[nodes != topology.node[server]]
    arriving = Flows(away, np.full(len(away), server), np.full(len(away), 1 / each))
    return [*inside, Round(1, [arriving])]


def from_server(devices: Ints, server: int, topology: Topology) -> list[Round]:
    """The sum on its way back to all machines."""
    return mirror(to_server(devices, server, topology))
