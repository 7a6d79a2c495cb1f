"""Lists of a cluster's nodes: those of Alibaba's openb and PAI traces, and the lab's own.

A row is a node. The lab's own columns are ``name``, ``gpus`` and ``type`` (of the devices), and where they
are known ``cpus`` (processors) and ``memory`` (bytes); openb's are ``sn cpu_milli memory_mib gpu model``,
PAI's (``pai_machine_spec``, also without a header line) ``machine gpu_type cap_cpu cap_mem cap_gpu``. Types
are kept as they are written. A node without devices has processors alone.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers import archive
from experiments.readers.base import Reader, Reading
from experiments.readers.csv_table import Table, header_of, read_table
from experiments.workloads.node_list import NodeList
from experiments.workloads.step import Floats

OPENB = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
OWN = ("name", "gpus", "type")
PAI = ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu")
_PAI_ROW = re.compile(rb"[^,\n]*[A-Za-z][^,\n]*,[^,\n]*(,\d{1,9}(\.\d{0,9})?){3}\r?(\n|$)")
MOST_NODES, MOST_GPUS, MOST_DEVICES = 100_000, 4_096, 1_000_000


def read_node_list(path: Path) -> NodeList:
    """Read a node list (CSV, packed or not); ``BadInput`` names file, line, column and value."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise BadInput(error.strerror or str(error), path.name, "a readable node list") from None
    members = archive.members(raw, path.name)
    if len(members) != 1:
        raise BadInput(f"holds {len(members)} files", path.name, "one node list")
    return parse_node_list(members[0].data, members[0].name)


def parse_node_list(data: bytes, name: str) -> NodeList:
    """The nodes in the text of a list."""
    table = read_table(data, name, (), columns_are=PAI if _PAI_ROW.match(data) else ())
    if len(table) > MOST_NODES:
        raise BadInput(f"{len(table)} nodes", name, f"at most {MOST_NODES}")
    known = {OPENB: _openb, PAI: _pai}
    read = next((read for columns, read in known.items() if set(columns) <= table.columns.keys()), _own)
    found = read(table)
    for row in np.flatnonzero(found.gpus > 0):
        if not found.type[row]:
            column = next(name for name in ("model", "gpu_type", "type") if name in table.columns)
            raise table.bad(column, int(row), "names no type of devices", "a type")
    if found.gpus.sum() > MOST_DEVICES:
        raise BadInput(f"{found.gpus.sum()} devices", name, f"at most {MOST_DEVICES}")
    return found


def _openb(table: Table) -> NodeList:
    return NodeList(
        table.name,
        table.unique("sn"),
        table.counts("gpu", low=0, high=MOST_GPUS),
        table.columns["model"],
        table.numbers("cpu_milli", high=1e9) / 1000,
        table.numbers("memory_mib", high=1e12) * 2**20,
    )


def _pai(table: Table) -> NodeList:
    return NodeList(
        table.name,
        table.unique("machine"),
        table.counts("cap_gpu", low=0, high=MOST_GPUS),
        table.columns["gpu_type"],
        table.numbers("cap_cpu", high=1e6),
        table.numbers("cap_mem", high=1e9) * 2**30,
    )


def _own(table: Table) -> NodeList:
    for column in OWN:
        if column not in table.columns:
            listed = ", ".join(table.columns)[:200]
            expected = f"columns {', '.join(OWN)} (and cpus, memory), or openb's {', '.join(OPENB)}"
            raise BadInput(f"column {column!r} is missing from {listed}", f"{table.name}, line 1", expected)
    return NodeList(
        table.name,
        table.unique("name"),
        table.counts("gpus", low=0, high=MOST_GPUS),
        table.columns["type"],
        _told(table, "cpus", 1e6),
        _told(table, "memory", 1e18),
    )


def _told(table: Table, column: str, most: float) -> Floats:
    if column not in table.columns:
        return np.full(len(table), math.inf)
    return table.numbers(column, high=most)


def _recognizes(head: bytes, name: str) -> bool:
    header = header_of(head)
    return any(header.issuperset(columns) for columns in (OPENB, OWN, PAI)) or bool(_PAI_ROW.match(head))


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    found = parse_node_list(data, name)
    unknown = [
        what
        for what, column in (("processors", found.cpus), ("memory", found.memory))
        if np.isinf(column).all()
    ]
    assumed = tuple(f"the {what} of hosts are not told: as much as any job asks for" for what in unknown)
    return Reading(found, assumed)


READER = Reader(
    "node-list",
    "nodes",
    "nodes of a cluster: name, gpus, type and, optionally, cpus and memory; or those of openb's "
    "and PAI's traces (CSV)",
    _recognizes,
    _read,
)
