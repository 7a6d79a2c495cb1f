"""Dead code elimination: what no output, effect or random draw needs is removed (Muchnick, section 18.10).

Random ops stay even when nobody reads them, because removing one would shift the numbers that later ones draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.compilation.interface import CompilationPolicy, Graph, Pass, Recipe


def dead(graph: Graph) -> list[str]:
    """Op nodes that nothing alive reads, in execution order."""
    alive: set[str] = set()
    for node in reversed(graph.nodes):
        root = node.kind == "output" or node.random or node.mutates
        if root or node.name in alive:
            alive.add(node.name)
            alive.update(node.inputs)
    return [node.name for node in graph.ops if node.name not in alive]


@dataclass(frozen=True)
class Dce(CompilationPolicy):
    """Removes ops that reach no output; effects and random draws stay."""

    name: ClassVar[str] = "dce"

    def recipe(self, graph: Graph) -> Recipe:
        unread = [node for node in graph.ops if not graph.users[node.name] and (node.random or node.mutates)]
        refused = {
            node.name: "draws random numbers" if node.random else "mutates a tensor" for node in unread
        }
        return Recipe(passes=(Pass("dce", tuple((name,) for name in dead(graph)), refused),))
