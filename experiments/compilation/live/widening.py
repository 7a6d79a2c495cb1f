"""A graph with casts to a 16-bit type, with float32 in that type's place.

It must compute what it did without them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from experiments.compilation.interface import Graph, GraphNode, Symbol, TensorType


def widened(graph: Graph, dtype: str) -> Graph:
    """Return ``graph`` with every result of ``dtype`` and every cast to it in float32."""
    return Graph(tuple(_widened(node, dtype) for node in graph.nodes))


def _widened(node: GraphNode, dtype: str) -> GraphNode:
    def symbol(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(symbol(entry) for entry in value)
        return Symbol("dtype", "float32") if value == Symbol("dtype", dtype) else value

    def kind(found: TensorType | None) -> TensorType | None:
        return replace(found, dtype="float32") if found is not None and found.dtype == dtype else found

    outputs = tuple(kind(found) for found in node.outputs)
    return replace(node, arguments=symbol(node.arguments), keywords=symbol(node.keywords), outputs=outputs)
