"""ONNX Runtime: the model as an ONNX graph, rewritten by the runtime's own passes, run by its kernels.

Level "basic" folds constants and removes what does nothing, "extended" fuses nodes into kernels of its own
(attention, GELU, convolution with activation), "layout" changes the order of dimensions in memory to suit
this processor, "all" is everything. What is left open: an uploaded ONNX file runs as it is, any other model
as torch's exporter writes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.compilation.interface import Graph, Recipe, RecipePolicy
from experiments.core.knobs import knob


@dataclass(frozen=True)
class Onnxruntime(RecipePolicy):
    """Runs the model's ONNX graph, optimized by ONNX Runtime up to the chosen level."""

    name: ClassVar[str] = "onnxruntime"
    mechanism: ClassVar[str] = "compile or capture"

    level: str = knob(
        "all",
        "how far the graph is optimized",
        choices=("disable_all", "basic", "extended", "layout", "all"),
    )

    def recipe(self, graph: Graph) -> Recipe:
        return Recipe("onnxruntime", {"level": self.level})
