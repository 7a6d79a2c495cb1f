"""Whole-graph compilation in the style of XLA.

The model is one program of fixed sizes, or it is not compiled.

XLA compiles a program as a whole: every shape is known, elementwise ops are fused into their readers, and
buffers are assigned to memory in advance. Here TorchDynamo must capture one graph (``fullgraph``), sizes are
constants (another size is another program), Inductor fuses, and its memory planner places buffers in pools. A
model that is more than one graph is refused with the source line of each break; ``cocktailer`` or
``torch_compile`` carry such models out.

Not XLA itself: PyTorch/XLA is built for one version of torch, older than the ones here, so HLO's own passes
(layout assignment, algebraic simplification) are Inductor's counterparts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.compilation.interface import Graph, Recipe, RecipePolicy
from experiments.core.knobs import knob


@dataclass(frozen=True)
class WholeGraph(RecipePolicy):
    """Compiles the model as one graph of fixed sizes with planned memory, or refuses it by its breaks."""

    name: ClassVar[str] = "whole_graph"
    mechanism: ClassVar[str] = "compile or capture"

    planned: bool = knob(
        True, "place buffers in pools when compiling instead of allocating each in every call"
    )

    def recipe(self, graph: Graph) -> Recipe:
        return Recipe("whole_graph", {"planned": self.planned})
