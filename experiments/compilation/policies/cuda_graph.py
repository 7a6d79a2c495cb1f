"""CUDA graphs: a model's kernels are captured once and replayed with one launch (NVIDIA's guide for PyTorch).

Inputs are copied into buffers of their own, one set for each combination of shapes, strides and types;
results are copied out, as the next replay overwrites them (``clone``; without it the graph's own buffers are
handed out). A new combination is captured up to ``graphs`` of them, then runs eagerly. Refused are ops that
need the host or another device, or whose shapes depend on data. Random ops draw from the default generator,
which torch registers with every graph; other generators cannot occur in an exported graph.

On named hardware the gain is modeled: ``t_eager = max(n t_launch, sum t_k)``, ``t_graph = t_replay + sum
t_k``. What the guide leaves open, and what is taken here: the times of a launch and a replay, and that no
kernel is shorter than a floor, as roofline times of small ops are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from experiments.compilation.interface import Graph, Recipe
from experiments.compilation.interface.launches import LaunchPolicy, LaunchPrices
from experiments.core.knobs import knob


@dataclass(frozen=True)
class CudaGraph(LaunchPolicy):
    """Captures the model's kernels as a CUDA graph and replays them with one launch."""

    name: ClassVar[str] = "cuda_graph"
    mechanism: ClassVar[str] = "compile or capture"
    exceptions: ClassVar[Mapping[str, str]] = {
        "closed_form": "launches have a price of their own, worked by hand in its tests"
    }

    launch: float = knob(5e-6, "named hardware: the host's time for one launch", low=0.0, high=1e-3, unit="s")
    replay: float = knob(1e-5, "named hardware: time to launch a graph", low=0.0, high=1e-3, unit="s")
    shortest: float = knob(
        2e-6, "named hardware: time that a kernel takes at least", low=0.0, high=1e-3, unit="s"
    )
    graphs: int = knob(8, "combinations of shapes that are captured", low=1, high=1024)
    warm_up: int = knob(3, "calls on a side stream before the capture", low=1, high=100)
    clone: bool = knob(True, "copy results out of the graph's buffers")

    def recipe(self, graph: Graph) -> Recipe:
        return Recipe("cuda_graph", {"graphs": self.graphs, "warm_up": self.warm_up, "clone": self.clone})

    @property
    def prices(self) -> LaunchPrices:
        return LaunchPrices(self.launch, self.replay, self.shortest)
