"""Dead code elimination.

What no output, effect or random draw needs is removed (Muchnick, section 18.10).

Random ops stay even when nobody reads them, because removing one would shift the numbers that later ones
draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.compilation.interface import (
    OP,
    Applied,
    Graph,
    GraphNode,
    RewritePolicy,
    Rewritten,
    Workbench,
)


@dataclass(frozen=True)
class Dce(RewritePolicy):
    """Removes ops that reach no output; effects and random draws stay."""

    name: ClassVar[str] = "dce"
    mechanism: ClassVar[str] = "rewrite the graph"

    def rewrite(self, graph: Graph, bench: Workbench) -> Rewritten:
        dead = [node.name for node in graph.ops if node.name not in graph.live]
        kept = [node for node in graph.nodes if node.kind != OP or node.name in graph.live]
        unread = [node for node in graph.ops if node.anchored and not graph.users[node.name]]
        refused = {node.name: _why(node) for node in unread}
        return Rewritten(Graph(tuple(kept)), tuple(Applied("dead", (name,)) for name in dead), refused)


def _why(node: GraphNode) -> str:
    if node.mutates:
        return "mutates a tensor"
    return "draws random numbers" if node.random else "is there for its effect"
