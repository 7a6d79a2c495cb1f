"""Parts of a graph that are linear in each of their inputs: products, convolutions, sums and transpositions.

A part is grown from its last op over ops whose results nothing else reads. A bias makes an op affine: it is
kept apart and added at the end where nothing but sums stands between, else the part ends before that op.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from experiments.compilation.interface import CONSTANT, OP, Graph, GraphNode, Ref
from experiments.compilation.policies.pet.multilinear import (
    Convolved,
    Input,
    Multilinear,
    Product,
    Sum,
)
from experiments.compilation.policies.pet.rearranged import (
    Permuted,
    transpose,
)

PRODUCTS = ("aten.mm.default", "aten.bmm.default", "aten.matmul.default")
LINEAR, WITH_SUMMAND = "aten.linear.default", "aten.addmm.default"
CONVOLUTION, ADDITION = "aten.conv2d.default", "aten.add.Tensor"
EXCHANGES = ("aten.t.default", "aten.transpose.int", "aten.permute.default")
FLOATS = ("float64", "float32", "bfloat16", "float16")
#: ``stride``, ``padding``, ``dilation``, ``groups`` where a call leaves them out.
DEFAULTS: tuple[Any, ...] = ((1, 1), (0, 0), (1, 1), 1)


@dataclass
class Subprogram:
    """What stands for ``root``: a program over ``inputs``, and ``biases`` to be added to its result.

    ``constants`` are the numbers of the inputs that a call does not change.
    """

    root: str
    program: Multilinear = field(default_factory=lambda: Input(0, ()))
    inputs: list[Ref] = field(default_factory=list)
    constants: set[int] = field(default_factory=set)
    members: list[str] = field(default_factory=list)
    biases: list[Ref] = field(default_factory=list)


def subprograms(graph: Graph, most: int) -> Iterator[Subprogram]:
    """Yield disjoint parts of up to ``most`` operators, the last first.

    A convolution alone is none: its layouts are changed otherwise (``mutants``).
    """
    taken: set[str] = set()
    for node in reversed(graph.ops):
        if node.name in taken or node.name not in graph.live:
            continue
        reading = _Reading(graph, Subprogram(node.name), most, taken)
        found = reading.read()
        if _is_worth_it(found):
            taken.update(found.members)
            yield found


def _is_worth_it(found: Subprogram) -> bool:
    heavy = [part for part in _parts(found.program) if isinstance(part, Product | Convolved)]
    return any(isinstance(part, Product) for part in heavy) or (bool(heavy) and len(found.members) > 1)


def _parts(program: Multilinear) -> Iterator[Multilinear]:
    yield program
    for source in program.sources:
        yield from _parts(source)


class _Reading:
    """One part while it grows."""

    def __init__(self, graph: Graph, found: Subprogram, most: int, taken: set[str]) -> None:
        self._graph, self._found, self._most, self._taken = graph, found, most, taken
        self._left = most

    def read(self) -> Subprogram:
        """Return the part that ends in its root."""
        self._found.program = self._inner(Ref(self._found.root), affine=True)
        return self._found

    def _inner(self, ref: Ref, affine: bool) -> Multilinear:
        """Return a result as a program, or as an input where it is none that belongs to the part."""
        node = self._graph.by_name[ref.node]
        known = len(self._found.inputs), len(self._found.members), len(self._found.biases), self._left
        made = self._program(node, affine) if self._may_grow(node, ref) else None
        if made is not None and len(self._found.inputs) <= 8 and made.shape == self._graph.type(ref).shape:
            return made
        inputs, members, biases, self._left = known
        del self._found.inputs[inputs:], self._found.members[members:], self._found.biases[biases:]
        return self._input(ref)

    def _may_grow(self, node: GraphNode, ref: Ref) -> bool:
        if node.kind != OP or node.once or node.name in self._taken or len(node.outputs) != 1:
            return False
        alone = node.name == self._found.root or len(self._graph.users[node.name]) == 1
        return alone and node.dtype in FLOATS and not node.keywords

    def _input(self, ref: Ref) -> Multilinear:
        if ref not in self._found.inputs:
            self._found.inputs.append(ref)
        number = self._found.inputs.index(ref)
        if self._graph.by_name[ref.node].kind == CONSTANT and ref.node in self._graph.unwritten_constants:
            self._found.constants.add(number)
        return Input(number, self._graph.type(ref).shape)

    def _program(self, node: GraphNode, affine: bool) -> Multilinear | None:
        """Return the op over its operands, ``None`` where it is not linear in each of them."""
        exchange = node.target in EXCHANGES
        if not exchange and not self._left:
            return None
        self._left -= not exchange
        self._found.members.append(node.name)
        if exchange:
            return self._exchange(node)
        if node.target == ADDITION:
            return self._sum(node, affine)
        if node.target == CONVOLUTION:
            return self._convolution(node, affine)
        return self._product(node, affine)

    def _exchange(self, node: GraphNode) -> Multilinear | None:
        rank = len(node.shape)
        axes = list(range(rank))
        if node.target == "aten.permute.default":
            axes = [int(axis) % rank for axis in node.arguments[1]]  # type: ignore[union-attr, arg-type]
        else:
            one, other = (int(a) for a in node.arguments[1:3]) if len(node.arguments) > 2 else (0, -1)  # type: ignore[arg-type]
            axes[one], axes[other] = axes[other], axes[one]
        return Permuted(self._inner(node.refs[0], affine=False), tuple(axes)) if rank > 1 else None

    def _sum(self, node: GraphNode, affine: bool) -> Multilinear | None:
        if len(node.refs) != 2 or len(node.arguments) != 2:
            return None
        left, right = (self._graph.type(ref) for ref in node.refs)
        if left.shape != right.shape or left.dtype != right.dtype or len(left.shape) < 2:
            return None
        return Sum(self._inner(node.refs[0], affine), self._inner(node.refs[1], affine))

    def _product(self, node: GraphNode, affine: bool) -> Multilinear | None:
        refs = node.refs
        bias: tuple[Ref, ...] = ()
        if node.target == WITH_SUMMAND:
            bias, refs = refs[:1], refs[1:]
        elif node.target == LINEAR:
            refs, bias = refs[:2], refs[2:]
        elif node.target not in PRODUCTS:
            return None
        if (bias and not affine) or len(refs) != 2 or not self._fits(node, refs):
            return None
        self._found.biases += bias
        left, right = self._inner(refs[0], affine=False), self._inner(refs[1], affine=False)
        return Product(left, transpose(right) if node.target == LINEAR else right)

    def _fits(self, node: GraphNode, refs: tuple[Ref, ...]) -> bool:
        """Whether the operands are matrices or batches that a ``Product`` knows."""
        left, right = (self._graph.type(ref).shape for ref in refs)
        return 2 <= len(right) <= len(left) <= 3 and (len(right) == 2 or left[0] == right[0])

    def _convolution(self, node: GraphNode, affine: bool) -> Multilinear | None:
        bias = node.refs[2:]
        options: tuple[Any, ...] = (*node.arguments[3:], *DEFAULTS[len(node.arguments[3:]) :])
        stride, padding, dilation, groups = options
        plain = groups == 1 and len(node.shape) == 4 and not isinstance(padding, str)
        if not plain or (bias and not affine):
            return None
        self._found.biases += bias
        source, weight = (self._inner(ref, affine=False) for ref in node.refs[:2])
        return Convolved(source, weight, *((one[0], one[-1]) for one in (stride, padding, dilation)))
