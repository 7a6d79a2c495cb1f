"""What a compilation policy sees (a graph of plain records) and what it returns (a recipe).

The graph is the forward pass in evaluation mode, exported to functional ATen ops: no in-place op and no mutation is
left unless ``mutates`` says so. A recipe names passes, the nodes they may touch, and a backend; ``live`` carries it out
with torch's own machinery and checks the result against eager in float64 before anything is reported.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from experiments.core.policy import Policy

PASSES = ("cse", "dce", "constant_folding", "fuse_conv_bn")
BACKENDS = ("", "inductor", "cudagraphs")


@dataclass(frozen=True)
class Node:
    """One op, constant or input of a graph.

    ``kind`` is ``input``, ``constant`` (a parameter or buffer), ``op`` or ``output``; ``target`` the ATen overload
    (``aten.conv2d.default``) or the constant's name; ``inputs`` the nodes read, in argument order; ``arguments`` all
    arguments spelled canonically with node names inside. ``shape`` is () and ``bytes`` 0 where the node has no single
    tensor as value.
    """

    name: str
    kind: str
    target: str
    inputs: tuple[str, ...]
    arguments: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    random: bool
    mutates: bool


@dataclass(frozen=True)
class Graph:
    """Nodes in execution order; the last is the output."""

    nodes: tuple[Node, ...]

    @functools.cached_property
    def by_name(self) -> Mapping[str, Node]:
        return {node.name: node for node in self.nodes}

    @functools.cached_property
    def users(self) -> Mapping[str, tuple[Node, ...]]:
        """For every node the nodes that read it, once each."""
        found: dict[str, list[Node]] = {node.name: [] for node in self.nodes}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                found[name].append(node)
        return {name: tuple(nodes) for name, nodes in found.items()}

    @property
    def ops(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.kind == "op")


@dataclass(frozen=True)
class Pass:
    """One named pass and the nodes it is told to touch, with what it was refused and why.

    ``cse``: groups of equal nodes, the first survives. ``dce``: nodes to remove. ``constant_folding``: nodes to
    evaluate once. ``fuse_conv_bn``: (convolution, batch norm) pairs.
    """

    name: str
    groups: tuple[tuple[str, ...], ...]
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """Passes in order, then a backend (empty: run the graph as it is) with its options.

    ``untouched`` marks the eager recipe: the module itself is run, not even exported.
    """

    passes: tuple[Pass, ...] = ()
    backend: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    untouched: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class CompilationPolicy(Policy):
    """Asked one question: which passes on which nodes, and which backend."""

    family: ClassVar[str] = "compilation"
    modes: ClassVar[tuple[str, ...]] = ("measured",)

    def recipe(self, graph: Graph) -> Recipe:
        """The recipe for ``graph``."""
        raise NotImplementedError


def violations(recipe: Recipe, graph: Graph) -> list[str]:
    """What makes a recipe impossible to carry out on ``graph``, one line each; empty when it can be."""
    found = []
    if recipe.backend not in BACKENDS:
        found.append(f"backend {recipe.backend!r} is none of {BACKENDS}")
    for step in recipe.passes:
        if step.name not in PASSES:
            found.append(f"pass {step.name!r} is none of {PASSES}")
        names = [name for group in step.groups for name in group]
        found += [
            f"{step.name}: no node {name!r} in the graph" for name in names if name not in graph.by_name
        ]
        found += [
            f"{step.name}: node {name!r} is named twice"
            for name in sorted({n for n in names if names.count(n) > 1})
        ]
    return found
