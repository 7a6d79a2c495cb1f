"""The RunSpec's ``hardware`` field, in any of its four forms, to a ``Hardware``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.core.errors import BadInput
from experiments.hardware import library, local, networks
from experiments.hardware.fields import count, fields, positive
from experiments.hardware.nodes import spelled_out
from experiments.hardware.parts import Hardware, Node, NodeGroup, Peaks, Storage

WHERE = "spec.hardware"
MOST_NODES, MOST_DEVICES_PER_NODE = 100_000, 4_096
DEVICE_FIELDS = {"device", "overrides", "host", "storage", "remote"}
CLUSTER_FIELDS = (
    DEVICE_FIELDS | {"nodes", "node", "devices_per_node", "node_link", "host_link"} | networks.FIELDS
)


def resolve(spec: str | Mapping[str, Any] | Sequence[Any]) -> Hardware:
    """The hardware that ``spec`` names.

    ``spec`` is the name or alias of a device or node; ``"local"`` for this host; ``{"device", "overrides"}``,
    also with ``local``; ``{"cluster": {"nodes", "devices_per_node", "device", "node_link", "network"}}`` or
    ``{"nodes", "node"}`` with the sheet of a published machine (see ``nodes``), within ``cluster`` or as it
    is; or a list of such objects for a mixed cluster. A device and a cluster may also name ``host`` and
    ``storage`` sheets, and as ``remote`` the storage sheet of byte-addressable memory beyond the host's; a
    cluster also its ``host_link`` and how its nodes are joined (see ``networks``). What a spec leaves out
    comes from the node's sheet, then from the device's. ``BadInput`` names the value and the nearest names.
    """
    if spec == "local":
        return local.this_host()
    if isinstance(spec, Mapping) and spec.get("device") == "local":
        return _here(spec)
    if isinstance(spec, str) and library.knows("node", spec):
        return _cluster([{"node": spec}], [WHERE])
    if isinstance(spec, str):
        return _single({"device": spec}, WHERE)
    if isinstance(spec, Mapping) and "cluster" in spec:
        row = fields(spec, {"cluster"}, set(), WHERE)
        return _cluster([row["cluster"]], [f"{WHERE}.cluster"])
    if isinstance(spec, Mapping) and spec.keys() & {"nodes", "node"}:
        return _cluster([spec], [WHERE])
    if isinstance(spec, Mapping):
        return _single(spec, WHERE)
    if isinstance(spec, Sequence) and spec:
        places = [f"{WHERE}[{index}]" for index in range(len(spec))]
        return _cluster(spec, places)
    raise BadInput(f"{spec!r:.80} is not hardware", WHERE, "a sheet name, an object or a list of node groups")


def _here(spec: Mapping[str, Any]) -> Hardware:
    """This host with figures replaced; its host memory and storage are what they are."""
    row = fields(spec, {"device"}, {"device", "overrides"}, WHERE)
    found = local.this_host()
    node = override(found.node, row.get("overrides", {}), f"{WHERE}.overrides")
    return Hardware(_name_of({**row, "device": "local"}, node), (NodeGroup(1, node),), found.network)


def _single(spec: Mapping[str, Any], where: str) -> Hardware:
    row = fields(spec, {"device"}, DEVICE_FIELDS - {"device"}, where)
    sheet = library.device(row["device"], f"{where}.device")
    node = _node(row, where)
    return Hardware(_name_of(row, node), (NodeGroup(1, node),), sheet.network)


def _cluster(rows: Sequence[Any], places: Sequence[str]) -> Hardware:
    rows = [spelled_out(row, where) for row, where in zip(rows, places, strict=True)]
    groups = [_group(row, where) for row, where in zip(rows, places, strict=True)]
    links = networks.networks(rows, places)
    return Hardware(
        " + ".join(_label(row, group) for row, group in zip(rows, groups, strict=True)),
        networks.joined(groups, links),
        networks.slowest(links),
        rails=networks.rails(rows, groups, places),
        switch=networks.switch(rows, places),
        stragglers=networks.stragglers(rows, groups, places),
        warnings=networks.assumed(rows, groups, links),
    )


def _group(row: Any, where: str) -> NodeGroup:
    fields(row, {"device", "nodes"}, CLUSTER_FIELDS, where)
    return NodeGroup(count(row, "nodes", MOST_NODES, where), _node(row, where))


def _label(row: Mapping[str, Any], group: NodeGroup) -> str:
    """``16x4 t4-16g``, ``16x dgx-a100``, ``16x dgx-a100 of 4``."""
    node = group.node
    if not node.name:
        return f"{group.count}x{node.device_count} {_name_of(row, node)}"
    whole = library.node(node.name, WHERE).devices_per_node
    some = f" of {node.device_count}" if node.device_count != whole else ""
    return f"{group.count}x {_name_of(row, node)}{some}"


def _node(row: Mapping[str, Any], where: str) -> Node:
    """The node that a device or cluster object describes, overrides applied."""
    sheet = library.device(row["device"], f"{where}.device")
    link = (
        library.link(row["node_link"], f"{where}.node_link") if "node_link" in row else sheet.device.peer_link
    )
    host = library.host(row["host"], f"{where}.host") if "host" in row else sheet.host
    storage = library.storage(row["storage"], f"{where}.storage") if "storage" in row else sheet.storage
    per_node = count(row, "devices_per_node", MOST_DEVICES_PER_NODE, where)
    node = Node(sheet.device, per_node, link, host, storage, _remote(row, where))
    if "host_link" in row:
        node = _replaced(node, ("device", "host_link"), library.link(row["host_link"], f"{where}.host_link"))
    if "node" in row:
        machine = library.node(row["node"], f"{where}.node")
        node = dataclasses.replace(node, name=machine.name, source=machine.source)
    return override(node, row.get("overrides", {}), f"{where}.overrides")


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


def _name_of(row: Mapping[str, Any], node: Node) -> str:
    changed = ", ".join(f"{name}={value:g}" for name, value in sorted(row.get("overrides", {}).items()))
    name = node.name or node.device.name
    return f"{name} with {changed}" if changed else name


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


#: Capacities that a machine may lack altogether.
ABSENT_AT_ZERO = ("host_memory_bytes", "storage_bytes")


def override(node: Node, overrides: Any, where: str) -> Node:
    """``node`` with the named figures replaced; every value must be a positive finite number.

    Host memory and storage may be 0: a machine without them. ``peak_flops`` becomes the rate of every type
    that the device has.
    """
    if not isinstance(overrides, Mapping):
        raise BadInput(
            f"{overrides!r:.80} is not an object", where, "a JSON object of override names and numbers"
        )
    for name, given in overrides.items():
        if name not in OVERRIDES:
            raise BadInput(f"unknown override {name!r:.80}", where, library.nearest(name, OVERRIDES))
        value: Any = positive(given, name, f"{where}.{name}", or_zero=name in ABSENT_AT_ZERO)
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
