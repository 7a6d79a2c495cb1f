"""Hand-made Chakra traces in the forms that exist, with figures to work out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

COMPUTE, SEND, COLLECTIVE = 4, 5, 7


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def text(field: int, value: str | bytes) -> bytes:
    content = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(content)) + content


def attribute(name: str, **values: Any) -> bytes:
    """``int64``, ``bool`` or ``string``."""
    numbers = {"int64": 9, "bool": 27}
    body = text(1, name)
    for kind, value in values.items():
        body += text(29, value) if kind == "string" else number(numbers[kind], int(value))
    return text(10, body)


def arguments(field: int, *uses: tuple[int, int]) -> bytes:
    """Tensors of float as (storage, elements)."""
    values = ", ".join(f"[{storage + 100}, {storage}, 0, {count}, 4, 'cuda:0']" for storage, count in uses)
    shapes = ", ".join(f"[{count}]" for _, count in uses)
    types = ", ".join("'Tensor(float)'" for _ in uses)
    return text(field, text(1, f"[{values}]") + text(2, f"[{shapes}]") + text(3, f"[{types}]"))


def node(
    id: int,
    name: str,
    kind: int,
    microseconds: int,
    reads: Sequence[tuple[int, int]] = (),
    writes: Sequence[tuple[int, int]] = (),
    *more: bytes,
    after: Sequence[int] = (),
    on_host: bool = False,
) -> bytes:
    body = number(1, id) + text(2, name) + number(3, kind) + b"".join(number(5, dep) for dep in after)
    body += number(7, microseconds) + arguments(8, *reads) + arguments(9, *writes)
    return body + attribute("is_cpu_op", bool=on_host) + b"".join(more)


def delimited(*bodies: bytes) -> bytes:
    metadata = text(2, attribute("schema", string="1.0.1")[2:])
    return b"".join(varint(len(body)) + body for body in (metadata, *bodies))


#: A launch (3 on the host), two products, the loss's backward, an all-reduce of a gradient and a send.
#: Storages: 1 weights (1,000 floats, from before), 2 input (500), 3 and 4 hidden (250 and 200), 5 gradient
#: (1,000).
def training() -> bytes:
    return delimited(
        node(1, "aten::mm", COMPUTE, 3, on_host=True),
        node(2, "gemm", COMPUTE, 40, [(2, 500), (1, 1000)], [(3, 250)], after=[1]),
        node(3, "relu", COMPUTE, 10, [(3, 250)], [(4, 200)], after=[2]),
        node(4, "gemm_backward", COMPUTE, 60, [(4, 200), (2, 500)], [(5, 1000)], after=[3]),
        node(
            5,
            "ncclKernel_AllReduce_RING_LL_Sum_float",
            COLLECTIVE,
            30,
            [(5, 1000)],
            [],
            attribute("comm_type", int64=0),
            attribute("comm_size", int64=4000),
            after=[4],
        ),
        node(6, "ncclSend", SEND, 5, [(4, 200)], after=[3]),
    )


def as_graph() -> bytes:
    """The same nodes in the ``workload_graph`` form, the last two out of order."""
    rows = [
        (1, "aten::mm", COMPUTE, 3, [], True, {}),
        (2, "gemm", COMPUTE, 40, [1], False, {}),
        (3, "relu", COMPUTE, 10, [2], False, {}),
        (5, "ncclKernel_AllReduce_RING", COLLECTIVE, 30, [4], False, {"comm_size": 4000}),
        (4, "gemm_backward", COMPUTE, 60, [3], False, {}),
        (6, "ncclSend", SEND, 5, [3], False, {"comm_size": 800}),
    ]
    nodes = [
        {
            "Id": id,
            "Name": name,
            "NodeType": kind,
            "runtime": time,
            "data_deps": after,
            "is_cpu_op": host,
            **more,
        }
        for id, name, kind, time, after, host, more in rows
    ]
    return json.dumps({"workload_graph": nodes}).encode()
