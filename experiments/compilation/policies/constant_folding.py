"""Constant folding: what depends on constants alone is computed once, before the first run.

With ``freeze`` parameters and buffers are constants too, which is right for inference only. A result may not
be larger than ``most_bytes`` unless it is no larger than what it is computed from: folding ``ones(10**9)``
would trade an op for gigabytes.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import ClassVar

from experiments.compilation.interface import (
    Applied,
    Graph,
    GraphNode,
    RewritePolicy,
    Rewritten,
    Workbench,
)
from experiments.core.knobs import knob


@dataclass(frozen=True)
class ConstantFolding(RewritePolicy):
    """Evaluates ops of constants once; random ops, mutations and results that would be too large stay."""

    name: ClassVar[str] = "constant_folding"
    mechanism: ClassVar[str] = "rewrite the graph"

    freeze: bool = knob(True, "parameters and buffers are constants (inference only)")
    most_bytes: int = knob(
        2**20, "largest folded result that is not smaller than its inputs", low=0, unit="bytes"
    )

    def rewrite(self, graph: Graph, bench: Workbench) -> Rewritten:
        frozen = self.freeze and not self.training
        constant = set(graph.unwritten_constants) if frozen else set()
        refused: dict[str, str] = {}
        folded: set[str] = set()
        for node in graph.ops:
            if all(name in constant for name in node.inputs):
                reason = self._obstacle(node, graph)
                if reason:
                    refused[node.name] = reason
                else:
                    folded.add(node.name)
                    constant.add(node.name)
        return Rewritten(
            marked(graph, folded), tuple(Applied("constant", (name,)) for name in sorted(folded)), refused
        )

    def _obstacle(self, node: GraphNode, graph: Graph) -> str:
        if node.random:
            return "draws random numbers"
        if node.effect:
            return "is there for its effect"
        if node.mutates:
            return "mutates a tensor"
        read = sum(graph.by_name[name].bytes for name in node.inputs)
        if node.bytes > max(self.most_bytes, read):
            return f"would keep {node.bytes} bytes"
        return ""


def marked(graph: Graph, names: Set[str]) -> Graph:
    """Return the graph with the nodes of these names computed once."""
    return Graph(tuple(replace(node, once=True) if node.name in names else node for node in graph.nodes))
