"""Constant folding: what depends on constants alone is computed once, before the first run.

With ``freeze`` parameters and buffers are constants too, which is right for inference only. A result may not be larger
than ``most_bytes`` unless it is no larger than what it is computed from: folding ``ones(10**9)`` would trade an op for
gigabytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.compilation.interface import CompilationPolicy, Graph, Node, Pass, Recipe
from experiments.core.knobs import knob


@dataclass(frozen=True)
class ConstantFolding(CompilationPolicy):
    """Evaluates ops of constants once; random ops, mutations and results that would be too large stay."""

    name: ClassVar[str] = "constant_folding"

    freeze: bool = knob(True, "parameters and buffers are constants")
    most_bytes: int = knob(
        2**20, "largest folded result that is not smaller than its inputs", low=0, unit="bytes"
    )

    def recipe(self, graph: Graph) -> Recipe:
        constant = {node.name for node in graph.nodes if node.kind == "constant"} if self.freeze else set()
        refused: dict[str, str] = {}
        folded: list[str] = []
        for node in graph.ops:
            if not all(name in constant for name in node.inputs):
                continue
            reason = self._obstacle(node, graph)
            if reason:
                refused[node.name] = reason
                continue
            constant.add(node.name)
            folded.append(node.name)
        return Recipe(passes=(Pass("constant_folding", tuple((name,) for name in folded), refused),))

    def _obstacle(self, node: Node, graph: Graph) -> str:
        if node.random:
            return "draws random numbers"
        if node.mutates or any(user.mutates for user in graph.users[node.name]):
            return "is mutated"
        read = sum(graph.by_name[name].bytes for name in dict.fromkeys(node.inputs))
        if node.bytes > max(self.most_bytes, read):
            return f"would keep {node.bytes} bytes"
        return ""
