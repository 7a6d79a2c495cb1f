"""torch.compile (Ansel et al., ASPLOS 2024).

TorchDynamo captures graphs, TorchInductor generates fused kernels.

The policy chooses Inductor's mode; the mechanism is torch's own. On a CPU the modes differ little and a
speed-up is reported, never promised. Freezing turns parameters into constants, so it is for inference only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from experiments.compilation.interface import Graph, Recipe, RecipePolicy
from experiments.core.knobs import knob


@dataclass(frozen=True)
class TorchCompile(RecipePolicy):
    """Compiles the captured graphs with Inductor in the chosen mode."""

    name: ClassVar[str] = "torch_compile"
    mechanism: ClassVar[str] = "compile or capture"

    mode: str = knob(
        "default",
        "Inductor's mode",
        choices=("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"),
    )
    dynamic: bool = knob(False, "compile for any size instead of these sizes")
    freezing: bool = knob(False, "turn parameters into constants")
    update: bool = knob(False, "compile the whole training step: forward, backward and SGD's update")

    @property
    def updates(self) -> bool:
        return self.update

    def recipe(self, graph: Graph) -> Recipe:
        options: dict[str, Any] = {"mode": self.mode, "dynamic": self.dynamic, "freezing": self.freezing}
        return Recipe("inductor", options)
