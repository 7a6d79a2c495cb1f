"""What a cluster spec says of the way its nodes are joined.

``network`` names the link of an adapter. A node has ``nics_per_node`` of them, used as one, or ``rails``:
adapters that each serve an equal share of the node's devices (8 devices on 4 rails: 2 share one). ``switch``
puts ``nodes`` nodes under each leaf switch (with rails: one leaf for each rail); leaves meet at a spine, over
uplinks that carry what the leaf's nodes can send divided by ``oversubscription``; crossing the spine takes
``latency`` seconds more. Without it the network has no bottleneck but the adapters. ``stragglers`` are
devices of the group (from 0) that compute by a factor slower than they should.

Groups may have different networks: what one sends to another goes at the slower of the two, what stays in a
group at its own. Where they have different numbers of rails, each group's adapters form as many rails as all
have in common (8 and 4 adapters: 4 rails, of two adapters each in the first).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.core.errors import BadInput
from experiments.core.units import human
from experiments.hardware import library
from experiments.hardware.fields import count, fields, positive
from experiments.hardware.nodes import nodes_with
from experiments.hardware.parts import Link, NodeGroup, Switch

Rows = Sequence[Mapping[str, Any]]
FIELDS = {"network", "nics_per_node", "rails", "switch", "stragglers"}
MOST_NICS, MOST_NODES = 128, 100_000
WHERE = "spec.hardware"


def networks(rows: Rows, places: Sequence[str]) -> list[Link]:
    """What each group's nodes send on.

    A link that a group names holds for all that name none, but for the adapters of a ``node``, which are its
    own. Where nobody names one, all are joined by the slowest of their devices' usual ones.
    """
    pairs = list(zip(rows, places, strict=True))
    own = [_own(row, where) for row, where in pairs]
    usual = [_adapters(row, library.device(row["device"], where).network, where) for row, where in pairs]
    if not any(own):
        return [slowest(usual)] * len(usual)
    shared = [link for row, link in zip(rows, own, strict=True) if link and "node" not in row]
    return [link or (slowest(shared) if shared else other) for link, other in zip(own, usual, strict=True)]


def slowest(links: Sequence[Link]) -> Link:
    return min(links, key=lambda link: (link.bandwidth, link.name))


def _own(row: Mapping[str, Any], where: str) -> Link | None:
    return (
        _adapters(row, library.link(row["network"], f"{where}.network"), where) if "network" in row else None
    )


def _adapters(row: Mapping[str, Any], link: Link, where: str) -> Link:
    """``link`` as many times as the node has network adapters."""
    if "rails" in row and "nics_per_node" in row:
        raise BadInput(
            '"rails" and "nics_per_node" are both given', where, "one: rails are adapters that are used apart"
        )
    adapters = count(row, "rails" if "rails" in row else "nics_per_node", MOST_NICS, where)
    if adapters == 1:
        return link
    return dataclasses.replace(link, name=f"{adapters} x {link.name}", bandwidth=adapters * link.bandwidth)


def rails(rows: Rows, groups: Sequence[NodeGroup], places: Sequence[str]) -> int:
    """Rails of every node: adapters that are used apart, or as many as the groups have in common."""
    found = [row.get("rails", 1) for row in rows]
    for own, group, where in zip(found, groups, places, strict=True):
        if group.node.device_count % own:
            raise BadInput(
                f"{group.node.device_count} devices of a node do not share {own} rails equally",
                f"{where}.rails",
                "as many devices on every rail",
            )
    return math.gcd(*found)


def joined(groups: Sequence[NodeGroup], links: Sequence[Link]) -> tuple[NodeGroup, ...]:
    """The groups, those with a network of their own knowing it."""
    common = slowest(links)
    return tuple(
        group
        if link == common
        else dataclasses.replace(group, node=dataclasses.replace(group.node, network=link))
        for group, link in zip(groups, links, strict=True)
    )


def assumed(rows: Rows, groups: Sequence[NodeGroup], links: Sequence[Link]) -> tuple[str, ...]:
    """What was assumed of the adapters of several nodes that say nothing of them; nothing for one node."""
    if sum(group.count for group in groups) == 1:
        return ()
    silent = [
        _assumption(group, link)
        for row, group, link in zip(rows, groups, links, strict=True)
        if not _says_adapters(row, group)
    ]
    return tuple(dict.fromkeys(silent))


def _says_adapters(row: Mapping[str, Any], group: NodeGroup) -> bool:
    """Whether a spec says how many adapters a node has, or what they carry together."""
    if row.keys() & {"node", "rails", "nics_per_node"}:
        return True
    return "network" in row and (group.node.device_count == 1 or isinstance(row["network"], Mapping))


def _assumption(group: NodeGroup, link: Link) -> str:
    node, each = group.node, f"{human(link.bandwidth, 'bytes/s')}"
    known = nodes_with(node.device.name)
    named = f'"node" ({", ".join(known)})' if known else '"node"'
    return (
        f"assumed of each node: one adapter, {link.name} ({each}), for its {node.device_count} "
        f'{node.device.name}; say it by {named}, or by "network" with "rails" or "nics_per_node"'
    )


def switch(rows: Rows, places: Sequence[str]) -> Switch | None:
    if _common(rows, "switch") is None:
        return None
    where = f"{places[0]}.switch"
    row = fields(rows[0]["switch"], {"nodes"}, {"oversubscription", "latency"}, where)
    return Switch(
        nodes=count(row, "nodes", MOST_NODES, where),
        oversubscription=positive(row.get("oversubscription", 1.0), "oversubscription", where),
        latency=positive(row["latency"], "latency", where) if row.get("latency") else 0.0,
    )


def _common(rows: Rows, name: str) -> Any:
    """What all groups say, or nothing where none does."""
    said = [row.get(name) for row in rows]
    if any(value != said[0] for value in said):
        raise BadInput(f"the groups differ in {name!r}", WHERE, f'the same "{name}" in all')
    return said[0]


def stragglers(
    rows: Rows, groups: Sequence[NodeGroup], places: Sequence[str]
) -> tuple[tuple[int, float], ...]:
    """Devices of the whole cluster and how many times longer they compute, in order."""
    found, begin = [], 0
    for row, group, place in zip(rows, groups, places, strict=True):
        where, devices = f"{place}.stragglers", group.count * group.node.device_count
        slow = row.get("stragglers", {})
        if not isinstance(slow, Mapping):
            raise BadInput(f"{slow!r:.80} is not an object", where, "device numbers and factors")
        for name, factor in slow.items():
            found.append((begin + _device(name, devices, where), positive(factor, name, where)))
        begin += devices
    return tuple(sorted(found))


def _device(name: str, devices: int, where: str) -> int:
    if name.isascii() and name.isdecimal() and len(name) < 10 and int(name) < devices:
        return int(name)
    raise BadInput(f"{name!r:.80} is no device", where, f"a number from 0 to {devices - 1}")
