"""The nodes that a spec names under ``hardware``: groups of equal nodes by sheets, or a list in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.cluster.interface import Machine, Machines
from experiments.core.errors import BadInput
from experiments.hardware import Hardware, resolve
from experiments.readers.node_list import read_node_list
from experiments.workloads.node_list import NodeList


def cluster_of(spec: str | Mapping[str, Any] | Sequence[Any]) -> tuple[Machines, Mapping[str, Any]]:
    """The nodes, and what provenance tells of them. ``{"nodes": FILE}`` is a node list."""
    inner = spec.get("cluster") if isinstance(spec, Mapping) and set(spec) == {"cluster"} else spec
    if not isinstance(inner, Mapping) or not isinstance(inner.get("nodes"), str):
        hardware = resolve(spec)
        return machines_of(hardware), hardware.to_json()
    if more := sorted(inner.keys() - {"nodes"}):
        what = f"{', '.join(more)} beside the node list {inner['nodes']!r:.80}"
        raise BadInput(what, "spec.hardware", "nodes alone: the list says the rest")
    found = read_node_list(Path(inner["nodes"]))
    machines = machines_listed(found)
    return machines, {"name": found.file, "nodes": len(machines), "devices": machines.count_by_type}


def machines_listed(nodes: NodeList) -> Machines:
    """The nodes of a list, under its names."""
    columns = (nodes.name, nodes.gpus.tolist(), nodes.type, nodes.cpus.tolist(), nodes.memory.tolist())
    return Machines(Machine(*row) for row in zip(*columns, strict=True))


def machines_of(hardware: Hardware) -> Machines:
    """The nodes of a cluster as schedulers know them, rack by leaf switch."""
    each = hardware.switch.nodes if hardware.switch else len(hardware.nodes)
    return Machines(
        Machine(
            name=f"node {number}",
            gpus=node.device_count,
            device=node.device.name,
            cpus=float(node.host.cores),
            memory=float(node.host.memory_bytes),
            rack=number // each,
            network=(node.network or hardware.network).bandwidth,
            storage=min(node.storage.read_bandwidth, node.storage.write_bandwidth),
        )
        for number, node in enumerate(hardware.nodes)
    )
