"""All sheets as rows, for lists that people and programs read."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from experiments.hardware.library import KINDS, DeviceSheet, NodeSheet, Sheets, load


def catalog() -> list[dict[str, Any]]:
    """All sheets as JSON-ready rows: kind, name, aliases, source and every figure in SI units."""
    sheets = load()
    return [_row(sheets, kind, name) for kind in KINDS for name in sorted(sheets.by_kind[kind])]


@functools.cache
def accelerators() -> Mapping[str, float]:
    """Bytes of memory by the name of each device's sheet; a processor has its host's and is left out."""
    rows = (row for row in catalog() if row["kind"] == "device" and row["vendor"] != "generic")
    return MappingProxyType({row["name"]: float(row["memory_bytes"]) for row in rows})


def _row(sheets: Sheets, kind: str, name: str) -> dict[str, Any]:
    sheet = sheets.by_kind[kind][name]
    aliases = sorted(alias for alias, target in sheets.aliases[kind].items() if target == name)
    if isinstance(sheet, DeviceSheet):
        machine = {"host": sheet.host.name, "storage": sheet.storage.name, "network": sheet.network.name}
        part = sheet.device
        links = {"host_link": part.host_link.name, "peer_link": part.peer_link.name}
        rates = {"kernels": part.kernels.name, "units": part.units.name if part.units else None}
        return {"kind": kind, "aliases": aliases, **part.to_json(), **rates, **links, **machine}
    whole = _whole_node(sheets, sheet) if isinstance(sheet, NodeSheet) else {}
    return {"kind": kind, "aliases": aliases, **sheet.to_json(), **whole}


def _whole_node(sheets: Sheets, sheet: NodeSheet) -> dict[str, Any]:
    """What all devices and adapters of a node have together, and the parts that its sheet leaves out."""
    found: DeviceSheet = sheets.by_kind["device"][sheet.device]
    return {
        "memory_bytes": sheet.devices_per_node * found.device.memory_bytes,
        "network_bandwidth": sheet.rails * sheets.by_kind["link"][sheet.network].bandwidth,
        "node_link": sheet.node_link or found.device.peer_link.name,
        "host_link": sheet.host_link or found.device.host_link.name,
        "storage": sheet.storage or found.storage.name,
    }
