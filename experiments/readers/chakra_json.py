"""Chakra's JSON forms, of which there are three.

- ``{"workload_graph": [...]}``: nodes with ``Id``, ``Name``, ``NodeType``, ``data_deps``, ``runtime``
  (microseconds) and, for communication, ``comm_type`` and ``comm_size``; no tensors.
- ``{"schema": "...chakra...", "nodes": [...]}``: what PyTorch's ``ExecutionTraceObserver`` writes: nested
  calls with tensors, without times; ``ctrl_deps`` is the enclosing call.
- what ``chakra_jsonizer`` makes of the protobuf form: one JSON message after the other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from experiments.core import jsonio
from experiments.core.errors import BadInput
from experiments.readers.chakra_nodes import COLLECTIVE, COMPUTE, MOST_NODES, Node, seconds, tensors

NODE_TYPES = (
    "INVALID_NODE",
    "METADATA_NODE",
    "MEM_LOAD_NODE",
    "MEM_STORE_NODE",
    "COMP_NODE",
    "COMM_SEND_NODE",
    "COMM_RECV_NODE",
    "COMM_COLL_NODE",
)
MOST_MESSAGE = 16 * 2**20


def looks_like(head: bytes) -> bool:
    start = head.lstrip()[:1] == b"{"
    written_by_torch = b'"schema"' in head[:400] and (b"chakra" in head[:400] or b'"rf_id"' in head[:2000])
    jsonized = b'"attr"' in head[:400] and b'"schema"' in head[:2000]
    return start and (b'"workload_graph"' in head or written_by_torch or jsonized)


def read(data: bytes, name: str) -> tuple[list[Node], dict[str, Any]]:
    """All nodes as written and what the file says of itself."""
    if b'"attr"' in data[:400] and b'"nodes"' not in data[:400]:
        return _read_jsonized(data, name)
    content = jsonio.loads(data, name)
    if not isinstance(content, dict):
        raise BadInput("is no object", name, "a Chakra trace")
    key, reader = ("nodes", _torch_node) if "nodes" in content else ("workload_graph", _graph_node)
    rows = content.get(key)
    if not isinstance(rows, list) or len(rows) > MOST_NODES:
        raise BadInput(f"{key} is no list", name, f"a list of at most {MOST_NODES} nodes")
    nodes = [reader(_row(row, f"{name}: node {i}"), f"{name}: node {i}") for i, row in enumerate(rows)]
    return nodes, {field: value for field, value in content.items() if isinstance(value, str | int)}


def _row(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadInput(f"{value!r:.80} is no object", where, "a node")
    return value


def _integer(row: dict[str, Any], field: str, where: str, default: int | None = None) -> int:
    value = row.get(field, default)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20:
        value = int(value)  # protobuf writes 64-bit integers as texts
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**64:
        raise BadInput(f"{field} = {value!r:.40}", where, "an integer from 0 to 2**64 - 1")
    return value


def _integers(row: dict[str, Any], field: str, where: str) -> tuple[int, ...]:
    values = row.get(field, [])
    if not isinstance(values, list):
        raise BadInput(f"{field} is no list", where, "a list of node ids")
    return tuple(_integer({field: value}, field, where) for value in values)


def _graph_node(row: dict[str, Any], where: str) -> Node:
    attributes: dict[str, Any] = {
        field: row[field] for field in ("is_cpu_op", "comm_type", "comm_size") if field in row
    }
    return Node(
        _integer(row, "Id", where),
        str(row.get("Name", "")),
        _integer(row, "NodeType", where),
        seconds(row.get("runtime", 0), where),
        -math.inf,
        _integers(row, "data_deps", where),
        (),
        (),
        attributes,
    )


def _torch_node(row: dict[str, Any], where: str) -> Node:
    attributes = {
        item["name"]: item.get("value")
        for item in row.get("attrs", [])
        if isinstance(item, dict) and isinstance(item.get("name"), str)
    }
    name = str(row.get("name", ""))
    number = _integer(row, "id", where)
    inputs, outputs = (tensors(*_texts(row, side, where)) for side in ("input", "output"))
    kind = COLLECTIVE if name.startswith(("record_param_comms", "nccl:", "c10d::")) else COMPUTE
    parent = _integer(row, "ctrl_deps", where, _integer(row, "parent", where, 0))
    return Node(number, name, kind, math.nan, float(number), (), inputs, outputs, attributes, parent)


def _texts(row: dict[str, Any], side: str, where: str) -> list[str]:
    """Values, shapes and types of the ``input`` or ``output`` side, as texts. Before schema 1.0.2 they were
    lists of their own.
    """
    held = row.get(f"{side}s", {})
    if isinstance(held, list):
        return [json.dumps(row.get(name, [])) for name in (f"{side}s", f"{side}_shapes", f"{side}_types")]
    told = _row(held, f"{where}: {side}s")
    return [json.dumps(told.get(part, [])) for part in ("values", "shapes", "types")]


def _read_jsonized(data: bytes, name: str) -> tuple[list[Node], dict[str, Any]]:
    nodes: list[Node] = []
    metadata: dict[str, Any] = {}
    for index, row in enumerate(_messages(data, name)):
        where = f"{name}: message {index}"
        if index == 0 and "id" not in row:
            metadata = _attributes(row)
        elif len(nodes) >= MOST_NODES:
            raise BadInput("too many nodes", where, f"at most {MOST_NODES}")
        else:
            nodes.append(_jsonized_node(row, where))
    return nodes, metadata


def _messages(data: bytes, name: str) -> Iterator[dict[str, Any]]:
    """The objects of a file of objects one after the other, each held to the same rules as any JSON here."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"byte 0x{data[error.start]:02x} at offset {error.start} is not UTF-8", name) from None
    decoder, position = json.JSONDecoder(), 0
    while (position := _next(text, position)) < len(text):
        try:
            _, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"not valid JSON at offset {position}: {error}", name, "JSON messages") from None
        if end - position > MOST_MESSAGE:
            raise BadInput(f"a message of {end - position} bytes", name, f"at most {MOST_MESSAGE}")
        yield _row(jsonio.loads(text[position:end], f"{name}, offset {position}"), name)
        position = end


def _next(text: str, position: int) -> int:
    while position < len(text) and text[position].isspace():
        position += 1
    return position


def _attributes(row: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for item in row.get("attr", []):
        if isinstance(item, dict) and isinstance(item.get("name"), str):
            out[item["name"]] = next((value for key, value in item.items() if key.endswith("Val")), None)
    return {
        key: int(v) if isinstance(v, str) and v.lstrip("-").isdigit() and len(v) < 21 else v
        for key, v in out.items()
    }


def _jsonized_node(row: dict[str, Any], where: str) -> Node:
    kind = row.get("type", "INVALID_NODE")
    if kind not in NODE_TYPES:
        raise BadInput(f"type = {kind!r:.40}", where, "one of " + ", ".join(NODE_TYPES))
    sides = [_row(row.get(side, {}), f"{where}: {side}") for side in ("inputs", "outputs")]
    inputs, outputs = (
        tensors(*(str(side.get(part, "")) for part in ("values", "shapes", "types"))) for side in sides
    )
    start = _integer(row, "startTimeMicros", where, 0)
    return Node(
        _integer(row, "id", where, 0),
        str(row.get("name", "")),
        NODE_TYPES.index(kind),
        seconds(_integer(row, "durationMicros", where, 0), where),
        start / 1e6 if start else -math.inf,
        _integers(row, "dataDeps", where),
        inputs,
        outputs,
        _attributes(row),
    )
