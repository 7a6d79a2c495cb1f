"""Reads the spec sheets (``sheets/*.toml``): strict, merged, every name and alias unique.

A sheet file holds tables ``[link.NAME]``, ``[host.NAME]``, ``[storage.NAME]``, ``[kernels.NAME]``,
``[units.NAME]``, ``[device.NAME]`` and ``[node.NAME]``; a new sheet is a new table in any file of that
folder. ``aliases`` are other names for the same sheet: short forms and the product names that drivers
report.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import tomllib
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from experiments.core.errors import BadInput
from experiments.core.units import DTYPE_BYTES
from experiments.hardware.parts import ComputeUnits, Device, Host, KernelRates, Link, Peaks, Storage

SHEETS = Path(__file__).with_name("sheets")


@dataclasses.dataclass(frozen=True)
class DeviceSheet:
    """A device with the machine it usually sits in, used where a spec does not say otherwise."""

    device: Device
    host: Host
    storage: Storage
    network: Link


@dataclasses.dataclass(frozen=True)
class NodeSheet:
    """A published machine: what a cluster object would say of it, by the names of other sheets.

    ``rails`` adapters of the link ``network`` each serve an equal share of the ``devices_per_node`` devices.
    What is empty is the device's own.
    """

    name: str
    device: str
    devices_per_node: int
    network: str
    rails: int
    host: str
    source: str
    node_link: str = ""
    host_link: str = ""
    storage: str = ""

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


RECORDS = {
    "link": Link,
    "host": Host,
    "storage": Storage,
    "kernels": KernelRates,
    "units": ComputeUnits,
    "device": Device,
    "node": NodeSheet,
}
KINDS = tuple(RECORDS)
#: Kinds whose sheets name sheets of the others.
JOINED = ("device", "node")


@dataclasses.dataclass(frozen=True)
class Sheets:
    """All sheets by kind and canonical name, and for each kind the canonical name behind each alias."""

    by_kind: Mapping[str, Mapping[str, Any]]
    aliases: Mapping[str, Mapping[str, str]]


def link(name: object, where: str) -> Link:
    """A sheet's link, or one described in place: ``{"bandwidth": bytes/s, "latency": s, "duplex": true}``."""
    if isinstance(name, Mapping):
        return _read_link(name, where)
    found: Link = find("link", name, where)
    return found


def _read_link(row: Mapping[str, Any], where: str) -> Link:
    unknown = sorted(set(row) - {"bandwidth", "latency", "duplex"})
    figures = [row.get(name) for name in ("bandwidth", "latency")]
    for name, value in zip(("bandwidth", "latency"), figures, strict=True):
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e30:
            raise BadInput(f"{name} = {value!r:.80}", where, "bytes/s and seconds")
    if unknown or not row["bandwidth"] or not isinstance(row.get("duplex", True), bool):
        raise BadInput(
            f"{dict(row)!r:.80} is no link", where, "bandwidth above 0, latency, duplex true or false"
        )
    name = f"{row['bandwidth']:g} bytes/s after {row['latency']:g} s"
    return Link(
        name, float(row["bandwidth"]), float(row["latency"]), row.get("duplex", True), "given in the spec"
    )


def host(name: object, where: str) -> Host:
    found: Host = find("host", name, where)
    return found


def storage(name: object, where: str) -> Storage:
    found: Storage = find("storage", name, where)
    return found


def device(name: object, where: str) -> DeviceSheet:
    found: DeviceSheet = find("device", name, where)
    return found


def node(name: object, where: str) -> NodeSheet:
    found: NodeSheet = find("node", name, where)
    return found


def find(kind: str, name: object, where: str) -> Any:
    """The sheet called ``name`` (or so aliased); ``BadInput`` lists the nearest names."""
    sheets = load()
    known, aliases = sheets.by_kind[kind], sheets.aliases[kind]
    if isinstance(name, str) and aliases.get(name, name) in known:
        return known[aliases.get(name, name)]
    raise BadInput(f"{name!r:.80} is not a {kind} sheet", where, nearest(name, known, aliases))


def knows(kind: str, name: str) -> bool:
    """Whether a sheet is called, or aliased, ``name``."""
    sheets = load()
    return name in sheets.by_kind[kind] or name in sheets.aliases[kind]


def nearest(name: object, known: Iterable[str], aliases: Iterable[str] = ()) -> str:
    """The known names and aliases most like ``name``, or all known names where none is like it."""
    names = sorted(known)
    close = difflib.get_close_matches(str(name)[:80].lower(), sorted({*names, *aliases}), n=4, cutoff=0.5)
    return "one of " + ", ".join(close or names)


def names(kind: str = "device") -> tuple[str, ...]:
    """Canonical sheet names of a kind (link, host, storage, kernels, units, device, node), sorted."""
    return tuple(sorted(load().by_kind[kind]))


@functools.cache
def load() -> Sheets:
    """The sheets of this package, read once."""
    return read_sheets(SHEETS)


def read_sheets(folder: Path) -> Sheets:
    """Read and check every sheet file of ``folder``. ``BadInput`` names file, table and field."""
    tables: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in KINDS}
    for path in sorted(folder.glob("*.toml")):
        _merge(tables, path)
    aliases = {kind: _aliases(kind, tables[kind]) for kind in KINDS}
    plain = {kind: _records(kind, tables[kind]) for kind in KINDS if kind not in JOINED}
    parts = Sheets(plain, aliases)
    devices = {name: _device_sheet(name, row, parts) for name, row in tables["device"].items()}
    parts = Sheets({**plain, "device": devices}, aliases)
    nodes = {name: _node_sheet(name, row, parts) for name, row in tables["node"].items()}
    return Sheets({**parts.by_kind, "node": nodes}, aliases)


def _records(kind: str, rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {name: _record(RECORDS[kind], kind, name, row) for name, row in rows.items()}


def _merge(tables: dict[str, dict[str, dict[str, Any]]], path: Path) -> None:
    for kind, rows in tomllib.loads(path.read_text(encoding="utf-8")).items():
        if kind not in KINDS:
            raise BadInput(f"unknown kind of sheet {kind!r}", path.name, "one of " + ", ".join(KINDS))
        for name, row in rows.items():
            if name in tables[kind]:
                raise BadInput(f"{kind} {name!r} is described twice", path.name, "unique names")
            tables[kind][name] = row


def _aliases(kind: str, rows: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """Takes the ``aliases`` out of the rows; a name that could mean two sheets is an error."""
    found: dict[str, str] = {}
    for name, row in rows.items():
        for alias in row.pop("aliases", ()):
            if alias in rows or alias in found:
                raise BadInput(
                    f"alias {alias!r} already names a sheet", f"{kind}.{name}", "a name of its own"
                )
            found[alias] = name
    return found


def _record(record: type, kind: str, name: str, row: Mapping[str, Any]) -> Any:
    """``record(name=name, **row)`` once every field is known, present and of its declared type."""
    where = f"{kind}.{name}"
    fields = {field.name: field for field in dataclasses.fields(record) if field.name != "name"}
    types = typing.get_type_hints(record)
    for key, value in row.items():
        if key not in fields:
            raise BadInput(f"unknown field {key!r}", where, "one of " + ", ".join(fields))
        _check(value, types[key], key, where)
    for key, field in fields.items():
        if key not in row and field.default is dataclasses.MISSING:
            raise BadInput(f"field {key!r} is missing", where, "one of " + ", ".join(fields))
    return record(name=name, **row)


def _check(value: Any, declared: type, key: str, where: str) -> None:
    if declared in (int, float):
        accepted = int if declared is int else int | float
        if not isinstance(value, accepted) or isinstance(value, bool):
            raise BadInput(f"{key} = {value!r} is not a number", where, f"{declared.__name__} in SI units")
        if not 0 < value < math.inf:
            raise BadInput(
                f"{key} = {value!r} is not positive", where, "a positive finite number in SI units"
            )
    elif not isinstance(value, declared):
        raise BadInput(f"{key} = {value!r} has the wrong type", where, declared.__name__)
    elif value == "":
        raise BadInput(f"{key} = '' is empty", where, "a text")


def _peaks(row: Mapping[str, Any], where: str) -> Peaks:
    if not row:
        raise BadInput("no peaks", where, "a table of dtype names and FLOP/s")
    for dtype, rate in row.items():
        if dtype not in DTYPE_BYTES:
            raise BadInput(f"unknown dtype {dtype!r}", where, nearest(dtype, DTYPE_BYTES))
        _check(rate, float, dtype, where)
    return Peaks(row)


def _device_sheet(name: str, row: Mapping[str, Any], parts: Sheets) -> DeviceSheet:
    where = f"device.{name}"
    figures = dict(row)
    machine = {key: figures.pop(key, None) for key in ("host", "storage", "network")}
    for key in ("host_link", "peer_link"):
        figures[key] = _look_up(parts.by_kind["link"], figures.get(key), f"{where}.{key}")
    if "kernels" in figures:
        figures["kernels"] = _look_up(parts.by_kind["kernels"], figures["kernels"], f"{where}.kernels")
    if "units" in figures:
        figures["units"] = _look_up(parts.by_kind["units"], figures["units"], f"{where}.units")
    figures["peak_flops"] = _peaks(figures.get("peak_flops", {}), f"{where}.peak_flops")
    return DeviceSheet(
        device=_record(Device, "device", name, figures),
        host=_look_up(parts.by_kind["host"], machine["host"], f"{where}.host"),
        storage=_look_up(parts.by_kind["storage"], machine["storage"], f"{where}.storage"),
        network=_look_up(parts.by_kind["link"], machine["network"], f"{where}.network"),
    )


#: Fields of a node that name other sheets, and of which kind.
NAMED_BY_NODES = {
    **{kind: kind for kind in ("device", "host", "storage")},
    **dict.fromkeys(("network", "node_link", "host_link"), "link"),
}


def _node_sheet(name: str, row: Mapping[str, Any], parts: Sheets) -> NodeSheet:
    where = f"node.{name}"
    sheet: NodeSheet = _record(NodeSheet, "node", name, row)
    for field in NAMED_BY_NODES.keys() & row.keys():
        _look_up(parts.by_kind[NAMED_BY_NODES[field]], row[field], f"{where}.{field}")
    if sheet.devices_per_node % sheet.rails:
        raise BadInput(f"rails = {sheet.rails}", where, f"a divisor of {sheet.devices_per_node} devices")
    return sheet


def _look_up(known: Mapping[str, Any], name: object, where: str) -> Any:
    if isinstance(name, str) and name in known:
        return known[name]
    raise BadInput(f"{name!r} is not a sheet", where, nearest(name, known))
