"""Chakra's protobuf form: a ``GlobalMetadata`` and then ``Node`` messages, each after its length as a varint.

The message types are declared here from the fields of ``et_def.proto`` that are read (the numbers are the
format); what is not declared is skipped by protobuf itself. Only this module needs ``google.protobuf``, and
only when such a file is read: the package ``mlc-chakra`` has the whole schema, but brings graph drawing and
trace analysis with it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

from experiments.core.errors import BadInput
from experiments.readers.chakra_nodes import MOST_EDGES, MOST_NODES, Node, seconds, tensors

MOST_MESSAGE = 64 * 2**20
#: Fields by message: name -> (number, type). Types: ``google.protobuf.FieldDescriptorProto.Type``, or a
#: message's name.
_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _BOOL, _STRING, _MESSAGE, _UINT32 = 1, 2, 3, 4, 5, 8, 9, 11, 13
_Fields = dict[str, tuple[int, int | str]]
_ATTRIBUTE: _Fields = {
    "name": (1, _STRING),
    "double_val": (3, _DOUBLE),
    "float_val": (5, _FLOAT),
    "int32_val": (7, _INT32),
    "int64_val": (9, _INT64),
    "uint32_val": (11, _UINT32),
    "uint64_val": (13, _UINT64),
    "bool_val": (27, _BOOL),
    "string_val": (29, _STRING),
}
_ARGUMENTS: _Fields = {"values": (1, _STRING), "shapes": (2, _STRING), "types": (3, _STRING)}
_NODE: _Fields = {
    "id": (1, _UINT64),
    "name": (2, _STRING),
    "type": (3, _INT32),
    "ctrl_deps": (4, _UINT64),
    "data_deps": (5, _UINT64),
    "start_time_micros": (6, _UINT64),
    "duration_micros": (7, _UINT64),
    "inputs": (8, ".chakra.Arguments"),
    "outputs": (9, ".chakra.Arguments"),
    "attr": (10, ".chakra.Attribute"),
}
_METADATA: _Fields = {"version": (1, _STRING), "attr": (2, ".chakra.Attribute")}
_REPEATED = ("ctrl_deps", "data_deps", "attr")


def looks_like(head: bytes) -> bool:
    """A first message that is a ``GlobalMetadata`` with the attribute ``schema``, or a version."""
    if head[:1] == b"{" and head[1:].lstrip()[:1] in (b'"', b"}"):
        return False  # JSON, of which the brace and a line break read as a length and a field
    size, start = _length(head, 0)
    first = head[start : start + size] if 0 < size < 2**20 else b""
    return first[:1] in (b"\x0a", b"\x12") and b"schema" in first


def read(data: bytes, name: str) -> tuple[list[Node], dict[str, Any]]:
    """All nodes as written and the metadata's attributes."""
    metadata_type, node_type = _messages()
    nodes: list[Node] = []
    metadata: dict[str, Any] = {}
    edges = 0
    for index, (body, offset) in enumerate(_bodies(data, name)):
        where = f"{name}: message {index} at byte {offset}"
        message = _parse(node_type if index else metadata_type, body, where)
        if not index:
            metadata = _attributes(message)
            continue
        edges += len(message.ctrl_deps) + len(message.data_deps)
        if len(nodes) >= MOST_NODES or edges > MOST_EDGES:
            raise BadInput("too many nodes or dependencies", where, f"at most {MOST_NODES} and {MOST_EDGES}")
        nodes.append(_node(message, where))
    return nodes, metadata


def _bodies(data: bytes, name: str) -> Iterator[tuple[memoryview, int]]:
    view, position = memoryview(data), 0
    while position < len(data):
        size, start = _length(data, position)
        if size < 0 or size > MOST_MESSAGE or start + size > len(data):
            raise BadInput(
                f"a message at byte {position} is cut or broken", name, "length-delimited messages"
            )
        yield view[start : start + size], position
        position = start + size


def _length(data: bytes, position: int) -> tuple[int, int]:
    """A varint and where it ends; -1 where there is none."""
    value = shift = 0
    while position < len(data) and shift < 35:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, position
        shift += 7
    return -1, position


@functools.cache
def _messages() -> tuple[Any, Any]:
    """The classes of ``GlobalMetadata`` and ``Node``."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise BadInput("protobuf is not installed", "chakra", "the package protobuf") from None
    file = descriptor_pb2.FileDescriptorProto(name="chakra.proto", package="chakra", syntax="proto3")
    rows = {"Attribute": _ATTRIBUTE, "Arguments": _ARGUMENTS, "Node": _NODE, "GlobalMetadata": _METADATA}
    for message, fields in rows.items():
        declared = file.message_type.add(name=message)
        for field, (number, kind) in fields.items():
            made = declared.field.add(name=field, number=number, label=3 if field in _REPEATED else 1)
            made.type = _MESSAGE if isinstance(kind, str) else kind
            if isinstance(kind, str):
                made.type_name = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = [pool.FindMessageTypeByName(f"chakra.{name}") for name in ("GlobalMetadata", "Node")]
    metadata, node = (message_factory.GetMessageClass(descriptor) for descriptor in found)
    return metadata, node


def _parse(kind: Any, body: memoryview, where: str) -> Any:
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(bytes(body))
    except DecodeError as error:
        raise BadInput(
            f"not a Chakra message: {str(error)[:100]}", where, "a GlobalMetadata or a Node"
        ) from None


def _attributes(message: Any) -> dict[str, Any]:
    """Values by name. Attributes of kinds that nothing here reads come without one."""
    out = {}
    for attribute in message.attr:
        held = [field for field, _ in attribute.ListFields() if field.name != "name"]
        if held:
            out[attribute.name] = getattr(attribute, held[0].name)
        elif attribute.name in ("is_cpu_op", "comm_type", "comm_size"):
            out[attribute.name] = 0  # proto3 leaves zeros out
    return out


def _node(message: Any, where: str) -> Node:
    inputs, outputs = message.inputs, message.outputs
    return Node(
        message.id,
        message.name,
        message.type,
        seconds(message.duration_micros, where),
        seconds(message.start_time_micros or None, where) if message.start_time_micros else -math.inf,
        tuple(message.data_deps),
        tensors(inputs.values, inputs.shapes, inputs.types),
        tensors(outputs.values, outputs.shapes, outputs.types),
        _attributes(message),
    )
