"""The RunSpec's ``hardware`` field, in any of its four forms, to a ``Hardware``."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.core.errors import BadInput
from experiments.hardware import library, local
from experiments.hardware.parts import Hardware, Link, Node, NodeGroup, Peaks, Storage

WHERE = "spec.hardware"
MOST_NODES, MOST_DEVICES_PER_NODE, MOST_NICS = 100_000, 4_096, 64
DEVICE_FIELDS = {"device", "overrides", "host", "storage", "remote"}
CLUSTER_FIELDS = DEVICE_FIELDS | {"nodes", "devices_per_node", "node_link", "network", "nics_per_node"}


def resolve(spec: str | Mapping[str, Any] | Sequence[Any]) -> Hardware:
    """The hardware that ``spec`` names.

    ``spec`` is a sheet name or alias; ``"local"`` for this host; ``{"device", "overrides"}``, also with ``local``;
    ``{"cluster": {"nodes", "devices_per_node", "device", "node_link", "network"}}``; or a list of such cluster
    objects for a mixed cluster. A device and a cluster may also name ``host`` and ``storage`` sheets, and as ``remote``
    the storage sheet of byte-addressable memory beyond the host's; a cluster ``nics_per_node`` (1) network links per node. What a spec leaves out comes from the device's sheet.
    ``BadInput`` names the value and the nearest names.
    """
    if spec == "local":
        return local.this_host()
    if isinstance(spec, Mapping) and spec.get("device") == "local":
        return _here(spec)
    if isinstance(spec, str):
        return _single({"device": spec}, WHERE)
    if isinstance(spec, Mapping) and "cluster" in spec:
        row = _fields(spec, {"cluster"}, set(), WHERE)
        return _cluster([row["cluster"]], [f"{WHERE}.cluster"])
    if isinstance(spec, Mapping):
        return _single(spec, WHERE)
    if isinstance(spec, Sequence) and spec:
        places = [f"{WHERE}[{index}]" for index in range(len(spec))]
        return _cluster(spec, places)
    raise BadInput(f"{spec!r:.80} is not hardware", WHERE, "a sheet name, an object or a list of node groups")


def _here(spec: Mapping[str, Any]) -> Hardware:
    """This host with figures replaced; its host memory and storage are what they are."""
    row = _fields(spec, {"device"}, {"device", "overrides"}, WHERE)
    found = local.this_host()
    node = override(found.node, row.get("overrides", {}), f"{WHERE}.overrides")
    return Hardware(_named({**row, "device": "local"}, node), (NodeGroup(1, node),), found.network)


def _single(spec: Mapping[str, Any], where: str) -> Hardware:
    row = _fields(spec, {"device"}, DEVICE_FIELDS - {"device"}, where)
    sheet = library.device(row["device"], f"{where}.device")
    node = _node(row, where)
    return Hardware(_named(row, node), (NodeGroup(1, node),), sheet.network)


def _cluster(rows: Sequence[Any], places: Sequence[str]) -> Hardware:
    groups, labels = [], []
    for row, where in zip(rows, places, strict=True):
        _fields(row, {"device", "nodes"}, CLUSTER_FIELDS, where)
        group = NodeGroup(_count(row, "nodes", MOST_NODES, where), _node(row, where))
        groups.append(group)
        labels.append(f"{group.count}x{group.node.device_count} {_named(row, group.node)}")
    return Hardware(" + ".join(labels), tuple(groups), _network(rows, places))


def _network(rows: Sequence[Mapping[str, Any]], places: Sequence[str]) -> Link:
    """The one network that the groups name; where none does, the slowest of their devices' usual ones."""
    pairs = list(zip(rows, places, strict=True))
    named = {
        _nics(row, library.link(row["network"], f"{w}.network"), w) for row, w in pairs if "network" in row
    }
    if len(named) > 1:
        both = ", ".join(sorted(link.name for link in named))
        raise BadInput(f"the groups name different networks: {both}", WHERE, 'the same "network" in all')
    usual = [_nics(row, library.device(row["device"], w).network, w) for row, w in pairs]
    return named.pop() if named else min(usual, key=lambda link: (link.bandwidth, link.name))


def _nics(row: Mapping[str, Any], link: Link, where: str) -> Link:
    """``link`` as many times as the node has network adapters."""
    nics = _count(row, "nics_per_node", MOST_NICS, where)
    if nics == 1:
        return link
    return dataclasses.replace(link, name=f"{nics} x {link.name}", bandwidth=nics * link.bandwidth)


def _node(row: Mapping[str, Any], where: str) -> Node:
    """The node that a device or cluster object describes, overrides applied."""
    sheet = library.device(row["device"], f"{where}.device")
    link = (
        library.link(row["node_link"], f"{where}.node_link") if "node_link" in row else sheet.device.peer_link
    )
    host = library.host(row["host"], f"{where}.host") if "host" in row else sheet.host
    storage = library.storage(row["storage"], f"{where}.storage") if "storage" in row else sheet.storage
    per_node = _count(row, "devices_per_node", MOST_DEVICES_PER_NODE, where)
    return override(
        Node(sheet.device, per_node, link, host, storage, _remote(row, where)),
        row.get("overrides", {}),
        f"{where}.overrides",
    )


def _remote(row: Mapping[str, Any], where: str) -> Storage | None:
    """Memory beyond the host's that a spec names; only what can be used byte by byte."""
    if "remote" not in row:
        return None
    found = library.storage(row["remote"], f"{where}.remote")
    if not found.byte_addressable:
        usable = [name for name in library.names("storage") if library.storage(name, where).byte_addressable]
        raise BadInput(
            f"{found.name} is not byte-addressable", f"{where}.remote", "one of " + ", ".join(usable)
        )
    return found


def _named(row: Mapping[str, Any], node: Node) -> str:
    changed = ", ".join(f"{name}={value:g}" for name, value in sorted(row.get("overrides", {}).items()))
    return f"{node.device.name} with {changed}" if changed else node.device.name


def _count(row: Mapping[str, Any], name: str, most: int, where: str) -> int:
    value = row.get(name, 1)
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most:
        return value
    raise BadInput(f"{name} = {value!r:.80}", where, f"an integer from 1 to {most}")


def _fields(spec: Any, required: set[str], optional: set[str], where: str) -> Mapping[str, Any]:
    if not isinstance(spec, Mapping):
        raise BadInput(f"{spec!r:.80} is not an object", where, "a JSON object")
    for name in spec:
        if name not in required | optional:
            raise BadInput(f"unknown field {name!r:.80}", where, library.nearest(name, required | optional))
    for name in sorted(required - set(spec)):
        raise BadInput(f"field {name!r} is missing", where, "fields " + ", ".join(sorted(required)))
    return spec


# Where each override lands, from the node inwards.
OVERRIDES: Mapping[str, tuple[str, ...]] = {
    "memory_bytes": ("device", "memory_bytes"),
    "memory_bandwidth": ("device", "memory_bandwidth"),
    "peak_flops": ("device", "peak_flops"),
    "host_link_bandwidth": ("device", "host_link", "bandwidth"),
    "host_link_latency": ("device", "host_link", "latency"),
    "host_memory_bytes": ("host", "memory_bytes"),
    "storage_read_bandwidth": ("storage", "read_bandwidth"),
    "storage_write_bandwidth": ("storage", "write_bandwidth"),
    "storage_latency": ("storage", "latency"),
    "storage_bytes": ("storage", "capacity_bytes"),
}


def override(node: Node, overrides: Any, where: str) -> Node:
    """``node`` with the named figures replaced; every value must be a positive finite number.

    ``peak_flops`` becomes the rate of every type that the device has.
    """
    if not isinstance(overrides, Mapping):
        raise BadInput(
            f"{overrides!r:.80} is not an object", where, "a JSON object of override names and numbers"
        )
    for name, given in overrides.items():
        if name not in OVERRIDES:
            raise BadInput(f"unknown override {name!r:.80}", where, library.nearest(name, OVERRIDES))
        value: Any = _positive(given, name, f"{where}.{name}")
        if name == "peak_flops":
            value = Peaks(dict.fromkeys(node.device.peak_flops, value))
        node = _replaced(node, OVERRIDES[name], value)
    if overrides:
        source = f"{node.device.source}; overridden in the spec: {', '.join(sorted(overrides))}"
        node = _replaced(node, ("device", "source"), source)
    return node


def _replaced(record: Any, path: tuple[str, ...], value: Any) -> Any:
    """A copy of ``record`` with the field at ``path`` set to ``value``."""
    field, *inner = path
    new = _replaced(getattr(record, field), tuple(inner), value) if inner else value
    return dataclasses.replace(record, **{field: new})


def _positive(value: Any, name: str, where: str) -> float:
    """Sizes are whole bytes, everything else is a float."""
    whole = name.endswith("_bytes")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and 0 < value <= sys.float_info.max and not (whole and value < 1):
        return int(value) if whole else float(value)
    raise BadInput(
        f"{value!r:.80} is not usable", where, "a positive finite number" + (" of bytes" if whole else "")
    )
