"""What a cluster spec says of the way its nodes are joined.

``network`` names the link of an adapter. A node has ``nics_per_node`` of them, used as one, or ``rails``:
adapters that each serve an equal share of the node's devices (8 devices on 4 rails: 2 share one). ``switch``
puts ``nodes`` nodes under each leaf switch (with rails: one leaf for each rail); leaves meet at a spine, over
uplinks that carry what the leaf's nodes can send divided by ``oversubscription``; crossing the spine takes
``latency`` seconds more. Without it the network has no bottleneck but the adapters. ``stragglers`` are
devices of the group (from 0) that compute by a factor slower than they should.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.core.errors import BadInput
from experiments.hardware import library
from experiments.hardware.fields import count, fields, positive
from experiments.hardware.parts import Link, NodeGroup, Switch

Rows = Sequence[Mapping[str, Any]]
FIELDS = {"network", "nics_per_node", "rails", "switch", "stragglers"}
MOST_NICS, MOST_NODES = 64, 100_000
WHERE = "spec.hardware"


def network(rows: Rows, places: Sequence[str]) -> Link:
    """The one network that the groups name; where none does, the slowest of their devices' usual ones."""
    pairs = list(zip(rows, places, strict=True))
    named = {
        _adapters(row, library.link(row["network"], f"{w}.network"), w)
        for row, w in pairs
        if "network" in row
    }
    if len(named) > 1:
        both = ", ".join(sorted(link.name for link in named))
        raise BadInput(f"the groups name different networks: {both}", WHERE, 'the same "network" in all')
    usual = [_adapters(row, library.device(row["device"], w).network, w) for row, w in pairs]
    return named.pop() if named else min(usual, key=lambda link: (link.bandwidth, link.name))


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
    """Adapters of each node that are used apart: 1 unless the groups say otherwise, all the same."""
    found = _common(rows, "rails") or 1
    for group, where in zip(groups, places, strict=True):
        if group.node.device_count % found:
            raise BadInput(
                f"{group.node.device_count} devices of a node do not share {found} rails equally",
                f"{where}.rails",
                "as many devices on every rail",
            )
    return int(found)


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
