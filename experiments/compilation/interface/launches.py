"""When launching kernels one by one costs time, and what replaying them as one graph gives instead.

The host launches ahead of the device: whichever of the two is behind sets the pace. A graph is launched once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from experiments.compilation.interface import CompilationPolicy, Graph, GraphNode, Recipe, Symbol

#: Ops that need the host in the middle of a graph, by the reason.
HOST = "the host waits for its result"
SHAPES = "the shape of its result depends on data"
OBSTACLES: Mapping[str, str] = {
    **dict.fromkeys(("_local_scalar_dense", "item", "is_nonzero", "equal", "_assert_async"), HOST),
    **dict.fromkeys(("nonzero", "argwhere", "masked_select", "bincount"), SHAPES),
    **dict.fromkeys(
        ("_unique", "_unique2", "unique_consecutive", "unique_dim", "unique_dim_consecutive"), SHAPES
    ),
}


@dataclass(frozen=True)
class LaunchTimes:
    """Seconds of a model's kernels launched one by one, and replayed as a graph."""

    eager: float
    replayed: float
    kernels: int
    launching: float

    @property
    def speedup(self) -> float:
        return self.eager / self.replayed

    @property
    def bound(self) -> str:
        """What sets eager's pace: launches or kernels."""
        return "launches" if self.launching >= self.eager else "kernels"


def times(kernels: Sequence[float], launch: float, replay: float) -> LaunchTimes:
    """Return ``t_eager = max(n t_launch, sum t_k)`` and ``t_graph = t_replay + sum t_k``, all in seconds."""
    busy, launching = sum(kernels), len(kernels) * launch
    return LaunchTimes(max(launching, busy), replay + busy, len(kernels), launching)


def obstacles(graph: Graph, device: str) -> tuple[str, ...]:
    """Return what keeps a graph from being captured on ``device``, one line for each op."""
    return tuple(_obstacles(graph, device.partition(":")[0]))


def _obstacles(graph: Graph, device: str) -> Iterator[str]:
    for node in graph.ops:
        name = node.target.split(".")[1] if "." in node.target else node.target
        if name in OBSTACLES:
            yield f"{node.name} ({node.target}): {OBSTACLES[name]}"
        elif _elsewhere(node, device):
            yield f"{node.name} ({node.target}): runs on or copies to {_elsewhere(node, device)}"


def _elsewhere(node: GraphNode, device: str) -> str:
    """Return the device that an op names, where that is not the graph's."""
    named = (*node.arguments, *(value for _, value in node.keywords))
    found = [value.name for value in named if isinstance(value, Symbol) and value.kind == "device"]
    return next((name for name in found if name.partition(":")[0] != device), "")


@dataclass(frozen=True)
class LaunchPrices:
    """Seconds on named hardware: of one launch, of replaying a graph, and of the shortest kernel."""

    launch: float
    replay: float
    shortest: float


@dataclass(frozen=True)
class LaunchPolicy(CompilationPolicy):
    """Asked how kernels are launched: by which recipe here, at which prices on named hardware."""

    modes: ClassVar[tuple[str, ...]] = ("measured", "simulated")

    def recipe(self, graph: Graph) -> Recipe:
        raise NotImplementedError

    @property
    def prices(self) -> LaunchPrices:
        raise NotImplementedError
