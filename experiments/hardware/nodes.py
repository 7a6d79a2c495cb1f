"""A cluster object's ``node``: the sheet of a published machine in place of its parts.

The sheet says device, devices, adapters, links and host; what the object says beside it is taken instead.
Fewer devices than the machine has use their own adapters alone. Another device, or more of them, would be
another machine and is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.core.errors import BadInput
from experiments.hardware import library
from experiments.hardware.fields import count

#: Fields of a sheet that a cluster object has as well.
PARTS = ("devices_per_node", *library.NAMED_BY_NODES)


def spelled_out(row: Any, where: str) -> Any:
    """Return ``row`` with what the sheet of its ``node`` says and the row does not; one node unless it says.

    A row without ``node`` is returned as it is.
    """
    if not isinstance(row, Mapping) or "node" not in row:
        return row
    sheet = library.node(row["node"], f"{where}.node")
    _refuse_other_device(row, sheet, where)
    said = {name: getattr(sheet, name) for name in PARTS}
    parts = {name: value for name, value in said.items() if value}
    rails = {} if "nics_per_node" in row else {"rails": _rails(row, sheet, where)}
    return {"nodes": 1, **parts, **rails, **row}


def _refuse_other_device(row: Mapping[str, Any], sheet: library.NodeSheet, where: str) -> None:
    if "device" not in row:
        return
    given = library.device(row["device"], f"{where}.device").device.name
    if given != sheet.device:
        raise BadInput(
            f"a {sheet.name} has {sheet.device}, not {given}",
            f"{where}.device",
            f'{sheet.device}, or "device", "devices_per_node" and "rails" without "node"',
        )


def _rails(row: Mapping[str, Any], sheet: library.NodeSheet, where: str) -> int:
    """Adapters of the devices that are used; one where several devices share an adapter and one is used."""
    if "devices_per_node" not in row:
        return sheet.rails
    devices = count(row, "devices_per_node", sheet.devices_per_node, where)
    return max(1, devices * sheet.rails // sheet.devices_per_node)


def nodes_with(device: str) -> tuple[str, ...]:
    """Names of the sheets whose devices are ``device``."""
    return tuple(name for name in library.names("node") if library.node(name, name).device == device)
