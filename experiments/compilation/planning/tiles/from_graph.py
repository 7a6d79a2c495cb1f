"""The ops of a graph as tensor expressions that read each other's results.

Views cost nothing; a result that is read through one comes from memory (tiles are not followed through
reshapes), and a strided view counts as contiguous. What is computed once, when the graph is lowered, costs
nothing either. Ops without a form of their own are element-wise where their operands broadcast to the result;
the others are priced as copies of their result and reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from experiments.compilation.interface import OP, Graph, GraphNode, Ref
from experiments.compilation.interface.expressions import Expression, TensorAccess
from experiments.compilation.interface.tile_graph import TileGraph, TileNode
from experiments.compilation.planning.tiles import operators
from experiments.compilation.planning.tiles.from_ops import FORMS, Made, broadcast, copy, dtype_of

#: Ops that torch's schemas call copies and that move nothing.
FREE = frozenset({"aten._unsafe_view.default"})


@dataclass(frozen=True)
class Translated:
    """The operators, and the targets of ops that are priced as copies of their results."""

    graph: TileGraph
    copies: tuple[str, ...]


def translate(graph: Graph) -> Translated:
    """Return every computing op of ``graph`` as one operator (attention as three)."""
    reading = _Reading(graph)
    for node in graph.computing:
        if node.target not in FREE:
            reading.add(node)
    outputs = frozenset(
        reading.made[ref] for ref in map(reading.behind, graph.output.refs) if ref in reading.made
    )
    return Translated(TileGraph(tuple(reading.nodes), outputs), tuple(sorted(reading.copies)))


class _Reading:
    """The operators so far, and which of them makes which result."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[TileNode] = []
        self.by_name: dict[str, TileNode] = {}
        self.made: dict[Ref, str] = {}
        self.copies: set[str] = set()

    def add(self, node: GraphNode) -> None:
        if not any(out is not None and out.elements for out in node.outputs):
            return
        if node.target == "aten.scaled_dot_product_attention.default":
            self._attention(node)
        else:
            expression, refs = self._expression(node)
            self._append(node.name, expression, refs)
        self.made.update({Ref(node.name, output): node.name for output in range(len(node.outputs))})

    def _expression(self, node: GraphNode) -> Made:
        form = FORMS.get(node.target.split(".")[1])
        made = form(node, self.graph) if form else None
        if made is None:
            made = broadcast(node, self.graph)
        if made is None:
            self.copies.add(node.target)
            made = copy(node, self.graph)
        return replace(made[0], name=node.name), made[1]

    def _append(self, name: str, expression: Expression, refs: Sequence[Ref]) -> None:
        """Inputs are connected where the operator reads the result as it was made.

        The others come from memory.
        """
        sources, after = [""] * len(expression.inputs), []
        for place, ref in enumerate(refs):
            origin = self.behind(ref)
            maker = self.made.get(origin)
            if maker is None:
                continue
            if origin == ref and place < len(sources) and self._as_made(expression.inputs[place], maker):
                sources[place] = maker
            else:
                after.append(maker)
        self._put(TileNode(name, expression, tuple(sources), tuple(dict.fromkeys(after))))

    def _as_made(self, access: TensorAccess, maker: str) -> bool:
        """Return whether ``access`` is the maker's tensor, dimension by dimension.

        A convolution sees it with its padding.
        """
        made = self.by_name[maker].expression.output.shape
        same = len(made) == len(access.shape)
        return same and access.repeats == 1 and all(a >= b for a, b in zip(access.shape, made, strict=True))

    def _put(self, node: TileNode) -> None:
        self.nodes.append(node)
        self.by_name[node.name] = node

    def behind(self, ref: Ref) -> Ref:
        """Return the result whose memory ``ref`` shows."""
        node = self.graph.by_name.get(ref.node)
        while node is not None and node.kind == OP and (node.views or node.target in FREE) and node.refs:
            ref = node.refs[0]
            node = self.graph.by_name[ref.node]
        return ref

    def _attention(self, node: GraphNode) -> None:
        """Scores, softmax over whole rows, and the weighted sum of values."""
        query, key, value = (argument for argument in node.arguments[:3] if isinstance(argument, Ref))
        first, second, last = (self.graph.type(ref) for ref in (query, key, value))
        *batch, rows, depth = first.shape
        columns, width, dtype = second.shape[-2], last.shape[-1], dtype_of(first)
        scores, weights = f"{node.name}.scores", f"{node.name}.softmax"
        product = operators.matmul(rows, columns, depth, dtype, batch=batch, transposed=True, name=scores)
        self._append(scores, product, (query, key))
        shape = (*batch, rows, columns)
        soft = operators.rowwise(shape, (len(shape) - 1,), dtype, name=weights)
        self._put(TileNode(weights, soft, (scores,)))
        summed = operators.matmul(rows, width, columns, dtype, batch=batch, name=node.name)
        self.made[Ref(weights)] = weights
        self._append(node.name, summed, (Ref(weights), value))
