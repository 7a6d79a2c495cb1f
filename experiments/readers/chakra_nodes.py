"""Nodes of a Chakra execution trace, whatever it was written as, and the tensors that their arguments name.

An argument that is a tensor is written ``[tensor, storage, offset, elements, bytes of an element, device]``
(schema of ``Tensor`` in Chakra's ``et_def.proto``; the offset is in elements). Storages, not tensors, are
what memory is made of.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.core.errors import BadInput
from experiments.readers.kineto_shapes import TYPES

MOST_NODES, MOST_EDGES = 2_000_000, 20_000_000
MOST_BYTES = 2**50
#: Longest believable duration: a year.
MOST_MICROSECONDS = 3.2e13
#: NodeType of et_def.proto.
METADATA, MEM_LOAD, MEM_STORE, COMPUTE, SEND, RECEIVE, COLLECTIVE = range(1, 8)
#: CollectiveCommType of et_def.proto, in order.
COLLECTIVES = (
    "all_reduce",
    "reduce",
    "all_gather",
    "gather",
    "scatter",
    "broadcast",
    "all_to_all",
    "reduce_scatter",
    "reduce_scatter_block",
    "barrier",
)
_TENSOR = re.compile(
    r"\[(\d{1,20}), ?(\d{1,20}), ?(\d{1,20}), ?(\d{1,20}), ?(\d{1,3}), ?['\"]([^'\"]{0,40})['\"]\]"
)
_TYPE = re.compile(r"Tensor\(([^()]{0,60})\)")
_SHAPE = re.compile(r"\[([\d, ]{0,400})\]")


@dataclass(frozen=True)
class TensorUse:
    """A tensor argument: which storage it lies in, ``start`` bytes in, how many bytes, shape and type."""

    storage: int
    start: int
    bytes: int
    dtype: str
    item: int
    shape: tuple[int, ...]
    device: str


@dataclass(frozen=True)
class Node:
    """One node of an execution trace.

    ``seconds`` NaN where the trace has none; ``parent`` is the enclosing call in traces that PyTorch writes
    itself.
    """

    id: int
    name: str
    type: int
    seconds: float
    start: float
    dependencies: tuple[int, ...]
    inputs: tuple[TensorUse, ...]
    outputs: tuple[TensorUse, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    parent: int | None = None

    @property
    def on_host(self) -> bool:
        return bool(self.attributes.get("is_cpu_op", False))

    @property
    def communicates(self) -> bool:
        return self.type in (SEND, RECEIVE, COLLECTIVE)


def tensors(values: str, shapes: str, types: str) -> tuple[TensorUse, ...]:
    """The tensors among the arguments, read from the written lists.

    Shapes and types are matched in order; a shape is the next one that has as many elements.
    """
    kinds = _TYPE.findall(types)
    dims = (tuple(int(size) for size in text.split(",") if size.strip()) for text in _SHAPE.findall(shapes))
    found = []
    for index, row in enumerate(_TENSOR.findall(values)):
        storage, offset, elements, item = (int(value) for value in row[1:5])
        kind = kinds[index] if index < len(kinds) else ""
        dtype = TYPES.get(kind, (kind or "uint8", item))[0]
        size = min(elements * item, MOST_BYTES)
        shape = next((dim for dim in dims if math.prod(dim) == elements), ())
        found.append(TensorUse(storage, min(offset * item, MOST_BYTES), size, dtype, item, shape, row[5]))
    return tuple(found)


def seconds(value: Any, where: str) -> float:
    """Microseconds to seconds; absent is NaN."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_MICROSECONDS:
        raise BadInput(f"duration {value!r:.40}", where, f"0 to {MOST_MICROSECONDS:g} microseconds")
    return value / 1e6


def in_order(nodes: Sequence[Node], name: str) -> list[Node]:
    """By start time where told, else as written, but never before what a node's data depend on.

    Control dependencies are left out: in traces that come from PyTorch they name the enclosing call, and make
    cycles.
    """
    by_id = {node.id: index for index, node in enumerate(nodes)}
    if len(by_id) != len(nodes):
        raise BadInput("a node id appears twice", name, "unique ids")
    ranked = sorted(range(len(nodes)), key=lambda index: (nodes[index].start, index))
    done = [False] * len(nodes)
    out: list[Node] = []
    for first in ranked:
        for index in _dependencies_first(first, nodes, by_id, done, name):
            out.append(nodes[index])
    return out


def _dependencies_first(
    first: int, nodes: Sequence[Node], by_id: Mapping[int, int], done: list[bool], name: str
) -> Iterator[int]:
    """``first`` and all that it depends on and that is not done yet, dependencies first; no recursion."""
    open_ones: set[int] = set()
    stack: list[tuple[int, bool]] = [(first, False)]
    while stack:
        index, left = stack.pop()
        if done[index]:
            continue
        if left:
            open_ones.discard(index)
            done[index] = True
            yield index
            continue
        if index in open_ones:
            raise BadInput(f"node {nodes[index].id} depends on itself", name, "a graph without cycles")
        open_ones.add(index)
        stack.append((index, True))
        waiting = [by_id[d] for d in nodes[index].dependencies if d in by_id and not done[by_id[d]]]
        for other in reversed(waiting):
            if other in open_ones:
                raise BadInput(f"node {nodes[other].id} depends on itself", name, "a graph without cycles")
            stack.append((other, False))
