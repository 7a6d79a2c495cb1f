"""Operators that read each other's results.

The graph whose tiles Welder aligns and connects (OSDI'23, section 4).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.compilation.interface.expressions import Expression


@dataclass(frozen=True)
class TileNode:
    """One operator and where its inputs come from.

    ``sources`` name, for each input of its expression, the node whose result is read as it is. An empty
    source is data from memory: an argument, a weight, or a result that reaches the operator only through a
    view that no tile can be followed through; ``after`` names the producers of the latter.
    """

    name: str
    expression: Expression
    sources: tuple[str, ...]
    after: tuple[str, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        """Every node that must have run, once each."""
        return tuple(dict.fromkeys(name for name in (*self.sources, *self.after) if name))


@dataclass(frozen=True)
class TileGraph:
    """Nodes in execution order; ``kept`` are those whose result is needed in memory after the graph."""

    nodes: tuple[TileNode, ...]
    kept: frozenset[str] = frozenset()

    @functools.cached_property
    def by_name(self) -> Mapping[str, TileNode]:
        return {node.name: node for node in self.nodes}

    @functools.cached_property
    def place(self) -> Mapping[str, int]:
        return {node.name: index for index, node in enumerate(self.nodes)}

    @functools.cached_property
    def readers(self) -> Mapping[str, tuple[TileNode, ...]]:
        """For every node those that read its result, through a view or not, in execution order."""
        found: dict[str, list[TileNode]] = {node.name: [] for node in self.nodes}
        for node in self.nodes:
            for name in node.reads:
                found[name].append(node)
        return {name: tuple(nodes) for name, nodes in found.items()}

    def leaves(self, name: str, group: frozenset[str]) -> bool:
        """Return whether a result is needed outside ``group``, or in it through a view."""
        own = self.by_name[name].name
        return (
            own in self.kept
            or not self.readers[own]
            or any(reader.name not in group or own in reader.after for reader in self.readers[own])
        )


def independent(expressions: Sequence[Expression]) -> TileGraph:
    """Return operators of a list: none reads another's result."""
    nodes = tuple(TileNode(e.name, e, ("",) * len(e.inputs)) for e in expressions)
    return TileGraph(nodes, frozenset(node.name for node in nodes))
