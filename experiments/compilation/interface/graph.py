"""Graph records: a model's forward pass as functional ATen ops, without torch.

Nodes stand in execution order and read each other through ``Ref``, which carries the number of the output
that it means, so there are no nodes for selecting one of several results. Arguments are plain values;
``Symbol`` stands for torch's own constants (dtypes, devices, layouts, memory formats). ``live.export`` reads
a graph from ``torch.fx`` and ``live.lower`` turns it back without loss.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

INPUT, CONSTANT, OP, OUTPUT = "input", "constant", "op", "output"

#: Bytes of one element.
ITEM_BYTES: Mapping[str, int] = {
    **dict.fromkeys(("float64", "int64", "uint64", "complex64"), 8),
    **dict.fromkeys(("float32", "int32", "uint32"), 4),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 2),
    **dict.fromkeys(("int8", "uint8", "bool", "float8_e4m3fn", "float8_e5m2"), 1),
    "complex128": 16,
}


@dataclass(frozen=True, slots=True)
class Ref:
    """Output number ``output`` of the node called ``node``."""

    node: str
    output: int = 0


@dataclass(frozen=True, slots=True)
class Symbol:
    """One of torch's constants: ``kind`` is dtype, device, layout or memory_format."""

    kind: str
    name: str


Argument = Ref | Symbol | bool | int | float | complex | str | None | tuple["Argument", ...]


@dataclass(frozen=True, slots=True)
class TensorType:
    """``shape`` and ``stride`` in elements; ``dtype`` as torch spells it (``float32``)."""

    shape: tuple[int, ...]
    dtype: str
    stride: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * ITEM_BYTES[self.dtype]

    @property
    def contiguous(self) -> bool:
        return self.stride == contiguous(self.shape)


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return strides in elements of a row-major tensor; an empty axis counts as one."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


@dataclass(frozen=True)
class GraphNode:
    """One input, constant, op or the output.

    - ``target``: the ATen overload (``aten.conv2d.default``) of an op, the path of a constant (a parameter or
      buffer), the name of an input.
    - ``outputs``: the types of its results; ``None`` where one is no tensor.
    - ``random``: it draws from a generator.
    - ``mutates``: it writes to an argument, or its schema is unknown.
    - ``effect``: it is there for what it does, not for its result (assertions).
    - ``views``: a result shares memory with an argument.
    - ``once``: it depends on constants only and is computed when the graph is lowered, so a call does not pay
      for it.
    """

    name: str
    kind: str
    target: str
    arguments: tuple[Argument, ...] = ()
    keywords: tuple[tuple[str, Argument], ...] = ()
    outputs: tuple[TensorType | None, ...] = ()
    random: bool = False
    mutates: bool = False
    effect: bool = False
    views: bool = False
    once: bool = False

    @functools.cached_property
    def refs(self) -> tuple[Ref, ...]:
        """The results read, in argument order, once for each place they are read at."""
        return tuple(_refs((*self.arguments, *(value for _, value in self.keywords))))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The nodes read, once each, in argument order."""
        return tuple(dict.fromkeys(ref.node for ref in self.refs))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the first result; () where that is no tensor."""
        first = self.outputs[0] if self.outputs else None
        return () if first is None else first.shape

    @property
    def dtype(self) -> str:
        first = self.outputs[0] if self.outputs else None
        return "" if first is None else first.dtype

    @property
    def bytes(self) -> int:
        return sum(out.bytes for out in self.outputs if out is not None)

    @property
    def anchored(self) -> bool:
        """Whether it must stay, read or not: it changes something besides its results."""
        return self.kind in (INPUT, OUTPUT) or self.random or self.mutates or self.effect

    def keyword(self, name: str, default: Argument = None) -> Argument:
        return dict(self.keywords).get(name, default)


def _refs(value: Argument) -> Iterator[Ref]:
    if isinstance(value, Ref):
        yield value
    elif isinstance(value, tuple):
        for entry in value:
            yield from _refs(entry)


def map_refs(value: Any, change: Callable[[Ref], Any]) -> Any:
    """Return ``value`` with every ``Ref`` in it changed."""
    if isinstance(value, Ref):
        return change(value)
    if isinstance(value, tuple):
        return tuple(map_refs(entry, change) for entry in value)
    return value


@dataclass(frozen=True)
class Graph:
    """Nodes in execution order; the last is the output."""

    nodes: tuple[GraphNode, ...]

    @functools.cached_property
    def by_name(self) -> Mapping[str, GraphNode]:
        return {node.name: node for node in self.nodes}

    @functools.cached_property
    def users(self) -> Mapping[str, tuple[GraphNode, ...]]:
        """For every node the nodes that read it, once each, in execution order."""
        found: dict[str, list[GraphNode]] = {node.name: [] for node in self.nodes}
        for node in self.nodes:
            for name in node.inputs:
                found[name].append(node)
        return {name: tuple(nodes) for name, nodes in found.items()}

    @functools.cached_property
    def readers(self) -> Mapping[Ref, tuple[GraphNode, ...]]:
        """For every result that is read the nodes that read it, once each."""
        found: dict[Ref, list[GraphNode]] = {}
        for node in self.nodes:
            for ref in dict.fromkeys(node.refs):
                found.setdefault(ref, []).append(node)
        return {ref: tuple(nodes) for ref, nodes in found.items()}

    @property
    def ops(self) -> tuple[GraphNode, ...]:
        return tuple(node for node in self.nodes if node.kind == OP)

    @property
    def computing(self) -> tuple[GraphNode, ...]:
        """The ops that a call carries out: views cost nothing, and what is computed once is paid before."""
        return tuple(node for node in self.ops if not node.views and not node.once)

    @property
    def inputs(self) -> tuple[GraphNode, ...]:
        return tuple(node for node in self.nodes if node.kind == INPUT)

    @property
    def output(self) -> GraphNode:
        return self.nodes[-1]

    @property
    def mutates(self) -> bool:
        """Whether an op that writes to an argument is left.

        Then order and aliases matter and rewrites keep off.
        """
        return any(node.mutates for node in self.nodes)

    def type(self, ref: Ref) -> TensorType:
        found = self.by_name[ref.node].outputs[ref.output]
        assert found is not None, f"{ref} is no tensor"
        return found

    @functools.cached_property
    def live(self) -> frozenset[str]:
        """Nodes that the output, an effect or a mutation depends on."""
        return frozenset(reachable_from(self, [node.name for node in self.nodes if node.anchored]))

    @functools.cached_property
    def written(self) -> frozenset[str]:
        """Nodes that an op writes to, counters and running statistics among them.

        Another value in every call.
        """
        return frozenset(node.refs[0].node for node in self.ops if node.mutates and node.refs)

    @functools.cached_property
    def unwritten_constants(self) -> frozenset[str]:
        """Constants that no op writes to."""
        return frozenset(n.name for n in self.nodes if n.kind == CONSTANT and n.name not in self.written)

    @functools.cached_property
    def handed_out(self) -> frozenset[str]:
        """Nodes that share memory with an output: the caller may write to it."""
        found: set[str] = set()
        waiting = list(self.output.inputs)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += self.by_name[name].inputs if self.by_name[name].views else ()
        return frozenset(found)

    @functools.cached_property
    def hashes(self) -> Mapping[str, bytes]:
        """A Merkle hash of every node.

        Equal where op, arguments and everything below are equal, names of ops aside.
        """
        found: dict[str, bytes] = {}
        for number, node in enumerate(self.nodes):
            own = (node.kind, node.target, number if node.random or node.mutates else None)
            below = map_refs((node.arguments, node.keywords), lambda ref: (found[ref.node], ref.output))
            found[node.name] = hashlib.blake2b(repr((own, below)).encode(), digest_size=16).digest()
        return found

    @property
    def identity(self) -> str:
        """Of the outputs and everything they, effects and mutations depend on; equal for equal graphs."""
        kept = sorted(self.hashes[node.name] for node in self.nodes if node.anchored)
        return hashlib.blake2b(b"".join(kept), digest_size=16).hexdigest()


def reachable_from(graph: Graph, roots: list[str]) -> set[str]:
    """Return ``roots`` and every node that they depend on."""
    found, waiting = set(roots), list(roots)
    while waiting:
        for name in graph.by_name[waiting.pop()].inputs:
            if name not in found:
                found.add(name)
                waiting.append(name)
    return found
