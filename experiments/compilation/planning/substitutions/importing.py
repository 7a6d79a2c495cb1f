"""A graph of records as terms.

ATen ops with a place in the algebra are taken apart, all others stay as they are.

linear(x, w, b) is matmul(x, transpose(w)) + bias, addmm(b, x, w) is matmul(x, w) + bias, conv2d(x, w, b) is
conv2d(x, w) + bias; add and mul of equal shapes, relu, mm, bmm, matmul, cat and transposes of the last two
axes are what they say. The outermost term of each has the node as its ``origin``, so that a node is taken
apart for matching only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from experiments.compilation.interface import CONSTANT, INPUT, OP, Graph, GraphNode, IllTyped, Ref, map_refs
from experiments.compilation.planning.substitutions.terms import (
    ATEN,
    CHANNELS,
    FEATURES,
    RESULT,
    Opaque,
    TermCall,
    Terms,
)


@dataclass
class Imported:
    """Terms of a graph: ``values`` by result, ``roots`` what must be computed (outputs, then effects)."""

    terms: Terms
    graph: Graph
    values: dict[Ref, int] = field(default_factory=dict)
    roots: tuple[int, ...] = ()
    merged: dict[str, str] = field(default_factory=dict)


def import_graph(graph: Graph, terms: Terms) -> Imported:
    """Return ``graph`` as terms; equal nodes become one (``merged``: the later by the earlier)."""
    found = Imported(terms, graph)
    for node in graph.nodes:
        if node.kind in (INPUT, CONSTANT):
            found.values[Ref(node.name)] = terms.leaf(node.name, node.outputs, node.kind == CONSTANT)
        elif node.kind == OP:
            _add(node, found)
    anchored = [node for node in graph.ops if node.anchored]
    outputs = [found.values[ref] for ref in graph.output.refs]
    found.roots = (*outputs, *(found.values[Ref(node.name)] for node in anchored))
    return found


def _add(node: GraphNode, found: Imported) -> None:
    inputs = [found.values[ref] for ref in node.refs]
    number = None
    if not node.anchored and node.target in _READERS and len(node.outputs) == 1:
        number = _in_algebra(node, found)
    if number is None:
        number = found.terms.make_or_copy(ATEN, _opaque(node), tuple(inputs)).number
    term = found.terms[number]
    if term.kind == ATEN and term.data.call.target != node.target:
        term.successor = node.name  # a view of what equal ops made simpler: it became a copy
    elif term.origin or term.kind == RESULT:
        found.merged[node.name] = term.origin or found.terms[term.inputs[0]].origin
    else:
        term.origin, term.covers = node.name, _between(found.terms, number, set(inputs))
    _store(node, number, found)


def _between(terms: Terms, number: int, inputs: set[int]) -> tuple[int, ...]:
    """Return the terms that a node computes on the way from its inputs to its result."""
    waiting, inside = [number], set()
    while waiting:
        for source in terms[waiting.pop()].inputs:
            if source not in inputs and source not in inside:
                inside.add(source)
                waiting.append(source)
    return tuple(sorted(inside))


def _store(node: GraphNode, number: int, found: Imported) -> None:
    several = found.terms[number].kind == ATEN and len(node.outputs) > 1
    for output, kind in enumerate(node.outputs):
        if kind is not None:
            value = found.terms.make(RESULT, output, (number,)) if several else number
            found.values[Ref(node.name, output)] = value
    found.values.setdefault(Ref(node.name), number)


def _opaque(node: GraphNode) -> Opaque:
    places = iter(range(len(node.refs)))
    arguments, keywords = map_refs((node.arguments, node.keywords), lambda _: Ref(str(next(places))))
    return Opaque(TermCall(node.target, arguments, keywords), node.name if node.anchored else "")


def _in_algebra(node: GraphNode, found: Imported) -> int | None:
    """Return the node's term, or None where its arguments are not those that the algebra knows."""
    try:
        number = _READERS[node.target](node, found)
    except IllTyped:
        return None
    if number is None or found.terms.type(number).shape != node.shape:
        return None
    return number if found.terms.type(number).dtype == node.dtype else None


def _values(node: GraphNode, found: Imported) -> list[Any]:
    return [found.values[a] if isinstance(a, Ref) else a for a in node.arguments]


def _linear(node: GraphNode, found: Imported) -> int | None:
    x, w, bias = (*_values(node, found), None)[:3]
    product = found.terms.make("matmul", None, (x, found.terms.make("transpose", None, (w,))))
    return _add_bias(found.terms, product, bias, FEATURES)


def _addmm(node: GraphNode, found: Imported) -> int | None:
    bias, x, w = _values(node, found)
    if node.keywords or not isinstance(bias, int):
        return None
    return _add_bias(found.terms, found.terms.make("matmul", None, (x, w)), bias, FEATURES)


def _add_bias(terms: Terms, product: int, bias: int | None, axis: int) -> int | None:
    if bias is None:
        return product
    if not terms[bias].free or len(terms.shape(bias)) != 1:
        return None
    return terms.make("ew_add", None, (product, terms.broadcast(bias, axis, terms.shape(product))))


def _convolution(node: GraphNode, found: Imported) -> int | None:
    defaults = (None, None, None, (1, 1), (0, 0), (1, 1), 1)
    given = [*_values(node, found), *defaults[len(node.arguments) :]]
    x, w, bias, stride, padding, dilation, groups = given
    if len(found.terms.shape(x)) != 4 or isinstance(padding, str):
        return None
    pairs = [value * 2 if len(value) == 1 else value for value in (stride, padding, dilation)]
    plain = found.terms.make("conv2d", (*pairs, groups), (x, w))
    return _add_bias(found.terms, plain, bias, CHANNELS)


def _product(node: GraphNode, found: Imported) -> int | None:
    x, y = _values(node, found)
    return found.terms.make("matmul", None, (x, y))


def _elementwise(kind: str) -> Callable[[GraphNode, Imported], int | None]:
    def read(node: GraphNode, found: Imported) -> int | None:
        x, y = _values(node, found)
        if node.keywords or not (isinstance(node.arguments[0], Ref) and isinstance(node.arguments[1], Ref)):
            return None
        return found.terms.make(kind, None, (x, y))

    return read


def _relu(node: GraphNode, found: Imported) -> int | None:
    return found.terms.make("relu", None, _values(node, found))


def _concatenation(node: GraphNode, found: Imported) -> int | None:
    """Return ``cat`` of many: pairs from the left."""
    parts, axis = (*node.arguments, 0)[:2]
    assert isinstance(parts, tuple) and isinstance(axis, int)
    numbers = [found.values[ref] for ref in parts if isinstance(ref, Ref)]
    axis -= len(node.shape) if axis >= 0 else 0
    whole = numbers[0]
    for number in numbers[1:]:
        whole = found.terms.make("concat", axis, (whole, number))
    return whole if len(numbers) > 1 else None


def _transpose(node: GraphNode, found: Imported) -> int | None:
    x = found.values[node.refs[0]]
    rank = len(found.terms.shape(x))
    axes = (-1, -2) if len(node.arguments) == 1 else node.arguments[1:]
    if rank < 2 or {axis % rank for axis in axes if isinstance(axis, int)} != {rank - 1, rank - 2}:
        return None
    return found.terms.make("transpose", None, (x,))


_READERS: dict[str, Callable[[GraphNode, Imported], int | None]] = {
    "aten.linear.default": _linear,
    "aten.addmm.default": _addmm,
    "aten.conv2d.default": _convolution,
    "aten.mm.default": _product,
    "aten.bmm.default": _product,
    "aten.matmul.default": _product,
    "aten.add.Tensor": _elementwise("ew_add"),
    "aten.mul.Tensor": _elementwise("ew_mul"),
    "aten.relu.default": _relu,
    "aten.cat.default": _concatenation,
    "aten.transpose.int": _transpose,
    "aten.t.default": _transpose,
}
