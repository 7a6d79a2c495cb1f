"""``chakra``: a Chakra execution trace (protobuf or JSON) as a step: compute nodes with their times and
tensors, and communication nodes, which are ops too and stand in ``facts["communication"]`` with collective,
bytes and seconds.

The order is that of start times or of the file, dependencies first. Where there are nodes of a device, host
nodes count no time: they launched them. Traces that PyTorch writes itself have nested calls and no times: of
these the same calls are ops as in a profiler trace, and their FLOPs follow from shapes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers import chakra_json, chakra_protobuf
from experiments.readers.base import HEAD, Reader, Reading
from experiments.readers.chakra_calls import select_calls
from experiments.readers.chakra_nodes import COLLECTIVES, METADATA, RECEIVE, SEND, Node, TensorUse, in_order
from experiments.readers.kineto_ops import RANDOM, VIEWS
from experiments.readers.kineto_shapes import Argument, flops
from experiments.readers.plausibility import low_utilization
from experiments.workloads.ragged import Ragged
from experiments.workloads.step import KINDS, PHASES, Floats, Ops, Step, Tensors

MOST_TOLD = 100_000


def _recognizes(head: bytes, name: str) -> bool:
    return chakra_json.looks_like(head) or chakra_protobuf.looks_like(head)


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    head = data[:HEAD]
    told = chakra_json.looks_like(head) or (
        head.lstrip()[:1] == b"{" and not chakra_protobuf.looks_like(head)
    )
    form = chakra_json if told else chakra_protobuf
    nodes, metadata = form.read(data, name)
    if any(node.parent is not None for node in nodes):
        rows, phases = select_calls(nodes)
    else:
        rows = [node for node in in_order(nodes, name) if node.type != METADATA]
        phases = _phases(rows)
    if not rows:
        raise BadInput("no nodes", name, "at least one compute or communication node")
    step = _step(name, rows, phases, metadata, options)
    return Reading(step, _assumptions(rows, step), _warnings(rows, step))


def _phases(rows: Sequence[Node]) -> list[str]:
    """Forward up to the first node that is named for the backward pass, the update after the last."""
    named = [index for index, node in enumerate(rows) if "backward" in node.name.lower()]
    if not named:
        return ["forward"] * len(rows)
    first, last = named[0], named[-1]
    updates = [index for index in range(last + 1, len(rows)) if not rows[index].communicates]
    after = set(updates)
    return ["forward" if i < first else "optimizer" if i in after else "backward" for i in range(len(rows))]


def _step(
    name: str,
    rows: Sequence[Node],
    phases: Sequence[str],
    metadata: Mapping[str, Any],
    options: WorkloadOptions,
) -> Step:
    storages = _storages(rows, phases)
    ids = {storage: index for index, storage in enumerate(storages)}
    inputs = Ragged.of(list(dict.fromkeys(ids[use.storage] for use in node.inputs)) for node in rows)
    outputs = Ragged.of(list(dict.fromkeys(ids[use.storage] for use in node.outputs)) for node in rows)
    times = _times(rows)
    timed = bool(np.isfinite(times).all())
    where = "device" if any(not node.on_host for node in rows) else "host"
    communication = _communication(rows)
    facts: dict[str, Any] = {
        "source": "chakra",
        "schema": str(metadata.get("schema", metadata.get("version", "")))[:80],
        "batch": options.batch,
        "communication": communication[:MOST_TOLD],
        "communication_nodes": len(communication),
        "communication_bytes": sum(row["bytes"] for row in communication),
        "communication_seconds": sum(row["seconds"] or 0.0 for row in communication),
    }
    timing, timed_on = ("trace", f"{where} (from the trace)") if timed else ("none", "")
    ops = _ops(rows, phases, times)
    return Step(name, ops, _tensors(storages), inputs, outputs, timing, timed_on, facts)


def _times(rows: Sequence[Node]) -> Floats:
    """Seconds of each node; host nodes count nothing next to a device's."""
    device = any(not node.on_host and node.seconds > 0 for node in rows)
    return np.array([0.0 if device and node.on_host else node.seconds for node in rows], np.float64)


def _ops(rows: Sequence[Node], phases: Sequence[str], times: Floats) -> Ops:
    moved = [sum({u.storage: u.bytes for u in (*n.inputs, *n.outputs)}.values()) for n in rows]
    view = np.array([node.name in VIEWS for node in rows])
    return Ops(
        name=tuple(f"{node.name[:200]} #{node.id}" for node in rows),
        target=tuple(node.name[:200] for node in rows),
        module=("",) * len(rows),
        phase=np.array([PHASES.index(phase) for phase in phases], np.int8),
        seconds=times,
        flops=np.array([_flops(node) for node in rows], np.float64),
        bytes_moved=np.where(view, 0.0, np.array(moved, np.float64)),
        workspace=np.zeros(len(rows), np.int64),
        dtype=tuple(next((use.dtype for use in (*n.outputs, *n.inputs)), "") for n in rows),
        view=view,
        random=np.array([any(w in n.name for w in RANDOM) and "backward" not in n.name for n in rows]),
    )


def _flops(node: Node) -> float:
    """From shapes, for calls that PyTorch names; NaN for kernels, whose names say nothing that could be
    counted on.
    """
    if node.parent is None:
        return math.nan
    values = [
        Argument(position, use.shape, use.dtype, use.item, use.bytes // use.item)
        for position, use in enumerate(node.inputs)
        if use.item
    ]
    written = max((use.bytes // use.item for use in node.outputs if use.item), default=0)
    counted = flops(node.name, values, {"Input Dims": []}, written)
    only_one = node.name == "aten::convolution_backward" and len(node.outputs) == 1
    return counted / 2 if only_one else counted  # the first layer has no gradient of its input


@dataclass
class _Storage:
    """``first`` use and op, whether that op read it (so that it was there before), bytes, and who touches it
    later.
    """

    first: TensorUse
    op: int
    before: bool
    bytes: int
    updated: bool = False
    read_by_update: bool = False


def _storages(rows: Sequence[Node], phases: Sequence[str]) -> dict[int, tuple[TensorUse, str, int]]:
    """By storage: its first use, its kind and its bytes. What a node makes is as large as it is made (later
    uses may be expanded); what was there before, as large as the furthest that any use reaches.
    """
    found: dict[int, _Storage] = {}
    for index, node in enumerate(rows):
        read = {use.storage for use in node.inputs}
        written = {use.storage for use in node.outputs}
        for use in (*node.inputs, *node.outputs):
            end = use.start + use.bytes
            entry = found.setdefault(use.storage, _Storage(use, index, use.storage in read, end))
            if entry.before or entry.op == index:
                entry.bytes = max(entry.bytes, end)
            if phases[index] == "optimizer":
                entry.updated |= use.storage in written
                entry.read_by_update |= use.storage in read
    return {key: (entry.first, _kind(entry, phases[entry.op]), entry.bytes) for key, entry in found.items()}


def _kind(entry: _Storage, phase: str) -> str:
    """A tensor that is read before anything writes it was there before the step."""
    if entry.before and phase == "optimizer":
        return "optimizer_state" if entry.updated else "buffer"
    if entry.before:
        integer = entry.first.dtype.startswith("int")
        return "parameter" if entry.updated else "input" if integer else "buffer"
    if phase == "backward" and entry.read_by_update:
        return "gradient"
    return "activation" if phase == "forward" else "temporary"


def _tensors(storages: Mapping[int, tuple[TensorUse, str, int]]) -> Tensors:
    rows = list(storages.items())
    return Tensors(
        name=tuple(f"storage {storage}" for storage, _ in rows),
        bytes=np.array([size for _, (_, _, size) in rows], np.int64),
        dtype=tuple(use.dtype for _, (use, _, _) in rows),
        shape=tuple(use.shape for _, (use, _, _) in rows),
        kind=np.array([KINDS.index(kind) for _, (_, kind, _) in rows], np.int8),
        sparsity=np.full(len(rows), np.nan),
    )


def _communication(rows: Sequence[Node]) -> list[dict[str, Any]]:
    """Of a collective the device's node; its call on the host only where no device's is told."""
    chosen = [(index, node) for index, node in enumerate(rows) if node.communicates]
    if any(not node.on_host for _, node in chosen):
        chosen = [(index, node) for index, node in chosen if not node.on_host]
    return [
        {
            "op": index,
            "collective": collective(node),
            "bytes": int(node.attributes.get("comm_size") or sum(use.bytes for use in node.inputs)),
            "seconds": node.seconds if math.isfinite(node.seconds) else None,
        }
        for index, node in chosen
    ]


def collective(node: Node) -> str:
    """``all_reduce``, ``send``, ...: by type and attribute, else by name."""
    if node.type in (SEND, RECEIVE):
        return "send" if node.type == SEND else "receive"
    told = node.attributes.get("comm_type")
    if isinstance(told, int) and 0 <= told < len(COLLECTIVES):
        return COLLECTIVES[told]
    plain = node.name.lower().replace("_", "")
    ordered = sorted(COLLECTIVES, key=len, reverse=True)
    return next((name for name in ordered if name.replace("_", "") in plain), "unknown")


def _assumptions(rows: Sequence[Node], step: Step) -> tuple[str, ...]:
    told = ["nodes run one after the other in the order of the file, dependencies first"]
    if any(node.on_host for node in rows) and any(not node.on_host for node in rows):
        told.append("host nodes count no time next to the device's")
    told.append("what is read before anything writes it was there before the step")
    if any(node.parent is not None for node in rows):
        told[0] = "calls inside an operator belong to it, as in a profiler trace"
    else:
        told.append(
            "the backward pass starts with the first node named so; what follows the last is the update"
        )
    return tuple(told)


def _warnings(rows: Sequence[Node], step: Step) -> tuple[str, ...]:
    told = []
    if not len(step.tensors):
        told.append("no tensors: memory is unknown")
    if step.timing == "none":
        told.append("no times: ops are timed by roofline")
    if step.facts["communication_nodes"] and step.timing != "none":
        told.append("communication is counted in line: what overlapped with computation is counted twice")
    return (*told, *low_utilization(step, step.timed_on))


READER = Reader("chakra", "step", "Chakra execution trace (protobuf or JSON)", _recognizes, _read)
