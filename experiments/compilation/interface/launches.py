"""When launching kernels one by one costs time, and what replaying them as one graph gives instead.

The host launches ahead of the device: whichever of the two is behind sets the pace. A graph is launched once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from experiments.compilation.interface import Graph, GraphNode, RecipePolicy, Symbol
from experiments.core.knobs import knob

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
class LaunchPolicy(RecipePolicy):
    """A recipe that changes how kernels are launched, and the model of it for named devices."""

    exceptions: ClassVar[Mapping[str, str]] = {
        "closed_form": "launches have a price of their own, worked by hand in its tests"
    }

    launch: float = knob(5e-6, "named hardware: the host's time for one launch", low=0.0, high=1e-3, unit="s")
    replay: float = knob(1e-5, "named hardware: time to launch a graph", low=0.0, high=1e-3, unit="s")
    shortest: float = knob(
        2e-6, "named hardware: time that a kernel takes at least", low=0.0, high=1e-3, unit="s"
    )
