"""The kernels that Inductor makes of a graph.

What each one fuses and how many bytes it reads and writes.

Seen where Inductor's scheduler hands over its fused nodes. On a CPU a fused node is one or several loop
nests, and several fused nodes may share a function: ``emitted`` names the functions of the generated code.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch._inductor import config, custom_graph_pass, ir
from torch._inductor.graph import GraphLowering
from torch._inductor.scheduler import ExternKernelSchedulerNode, NopKernelSchedulerNode

GENERATED, LIBRARY, FALLBACK, TEMPLATE = "generated", "library", "fallback", "template"

#: ``cpp_fused_add_0 = async_compile.cpp_pybinding(...)`` and the same of Triton.
_DEFINED = re.compile(r"^(\w+) = async_compile\.\w+\(", re.MULTILINE)
#: A buffer of its own ("buf3 = empty_strided_cpu(...)"), one placed in a pool, and a pool with its shape and
#: type.
_OWN = re.compile(r"^ *buf\d+ = empty_strided_\w+\(", re.MULTILINE)
_PLACED = re.compile(r"^ *buf\d+ = (?:alloc_from_pool\(|buf\d+ +# alloc)", re.MULTILINE)
_POOL = re.compile(r"^ *pool\d+ = empty_strided_\w+\(\(([\d, ]+)\), .*torch\.(\w+)\)", re.MULTILINE)
#: Older versions of torch take any callable for the scheduler's pass.
_Pass: Any = getattr(custom_graph_pass, "CustomSchedulerPass", object)


@dataclass(frozen=True)
class InductorKernel:
    """One kernel that Inductor scheduled.

    Generated loops (or a template filled in), a library's routine, or an op run as it is in eager mode
    because Inductor cannot lower it. ``bytes`` read and written, each buffer once; ``loops`` the nests.
    """

    name: str
    kind: str
    ops: tuple[str, ...]
    bytes: int
    loops: int


@dataclass(frozen=True)
class Buffers:
    """Memory that a graph's code asks for.

    Buffers ``alone``, and those ``placed`` in pools of these bytes.
    """

    alone: int
    placed: int
    pools: tuple[int, ...]


@dataclass
class KernelTable:
    """What was seen while ``watch_kernels`` was open; ``buffers`` of each graph."""

    kernels: list[InductorKernel] = field(default_factory=list)
    emitted: list[str] = field(default_factory=list)
    buffers: list[Buffers] = field(default_factory=list)

    def count(self, *kinds: str) -> int:
        return sum(kernel.kind in kinds for kernel in self.kernels)

    def to_json(self) -> dict[str, Any]:
        return {
            "scheduled": [asdict(kernel) for kernel in self.kernels],
            "emitted": self.emitted,
            "buffers": [asdict(one) for one in self.buffers],
        }


class _Watch(_Pass):  # type: ignore[misc]
    """Changes nothing, so that a cached graph stays valid: its identity is its name."""

    def __init__(self, table: KernelTable) -> None:
        self._table = table

    def uuid(self) -> str:
        return "kernel table"

    def __deepcopy__(self, memo: dict[int, Any]) -> _Watch:
        return self

    def __getstate__(self) -> str:
        """What was seen is no part of a cached graph's key."""
        return self.uuid()

    def __call__(self, nodes: list[Any]) -> list[Any]:
        self._table.kernels += [row for node in nodes if (row := _row(node)) is not None]
        return nodes


@contextmanager
def watch_kernels() -> Iterator[KernelTable]:
    """Collect the kernels of everything that Inductor compiles inside (not of what it finds in its cache)."""
    table, before = KernelTable(), GraphLowering.save_output_code

    def keep(code: str) -> None:
        table.emitted += _DEFINED.findall(code)
        pools = tuple(_bytes(shape, dtype) for shape, dtype in _POOL.findall(code))
        table.buffers.append(Buffers(len(_OWN.findall(code)), len(_PLACED.findall(code)), pools))

    GraphLowering.save_output_code = staticmethod(keep)
    try:
        with config.patch(_post_fusion_custom_pass=_Watch(table)):
            yield table
    finally:
        GraphLowering.save_output_code = before


def _bytes(shape: str, dtype: str) -> int:
    """Of a tensor as the generated code writes it: "16, 16" and "float32"."""
    sizes = (int(size) for size in shape.split(",") if size.strip())
    return math.prod(sizes) * int(getattr(torch, dtype).itemsize)


def _row(node: Any) -> InductorKernel | None:
    if isinstance(node, NopKernelSchedulerNode) or isinstance(node.node, ir.MultiOutput):
        return None
    inner = [part.node for part in node.get_nodes() if part.node is not None]
    ops = dict.fromkeys(_ops(inner))
    return InductorKernel(
        node.get_name(), _kind(node), tuple(ops), int(node.get_read_write_buffers_sizes()), len(inner)
    )


def _kind(node: Any) -> str:
    if isinstance(node, ExternKernelSchedulerNode):
        return FALLBACK if isinstance(node.node, ir.FallbackKernel) else LIBRARY
    return TEMPLATE if node.is_template() else GENERATED


def _ops(inner: list[Any]) -> Iterator[str]:
    """ATen ops that the parts were lowered from, in the graph's order."""
    origins = {origin for part in inner for origin in part.get_origins()}
    for origin in sorted(origins, key=lambda origin: (origin.graph is not None, origin)):
        if origin.op == "call_function":
            yield str(origin.target)
