"""Changing a graph: nodes are added, results replaced by others, and what nobody reads any more goes."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from experiments.compilation.interface.graph import (
    OP,
    Argument,
    Graph,
    GraphNode,
    Ref,
    map_refs,
    reachable_from,
)
from experiments.core.errors import LabError


class IllTyped(LabError):
    """An op does not accept arguments of these shapes and types."""


class Signature(NamedTuple):
    """Types of an op's results on given arguments, and how it behaves (see ``GraphNode``)."""

    outputs: tuple[Any, ...]
    random: bool = False
    mutates: bool = False
    effect: bool = False
    views: bool = False


class Types(Protocol):
    """Shape inference: arguments hold a ``TensorType`` where a node's hold a ``Ref``; raises ``IllTyped``."""

    def __call__(
        self, target: str, arguments: tuple[Any, ...], keywords: tuple[tuple[str, Any], ...]
    ) -> Signature: ...


class Draft:
    """A graph being changed.

    New nodes stand as early as their arguments allow, the others keep their order.
    """

    def __init__(self, graph: Graph, types: Types) -> None:
        self.graph = graph
        self._types = types
        self._nodes = dict(graph.by_name)
        self._place = {node.name: float(number) for number, node in enumerate(graph.nodes)}
        self._users = {name: {user.name for user in users} for name, users in graph.users.items()}
        self._made: dict[str, None] = {}
        self._fresh = itertools.count()

    @property
    def made(self) -> tuple[str, ...]:
        """Names of the nodes added so far."""
        return tuple(self._made)

    def node(self, name: str) -> GraphNode:
        return self._nodes[name]

    def type(self, ref: Ref) -> Any:
        return self._nodes[ref.node].outputs[ref.output]

    def op(self, target: str, *arguments: Argument, once: bool = False, **keywords: Any) -> Ref:
        """Add ``target(*arguments, **keywords)`` and return its first result.

        Lists in arguments are tuples here.
        """
        named = tuple(sorted(keywords.items()))
        known = self._signature(target, arguments, named, self.type)
        name = self._name(target)
        node = GraphNode(name, OP, target, arguments, named, *known, once=once)
        self._nodes[name], self._made[name], self._users[name] = node, None, set()
        self._place[name] = max((self._place[source] for source in node.inputs), default=-1.0)
        for source in node.inputs:
            self._users[source].add(name)
        return Ref(name)

    def _signature(self, target: str, arguments: Any, named: Any, type_of: Callable[[Ref], Any]) -> Signature:
        keywords = tuple((name, map_refs(value, type_of)) for name, value in named)
        return self._types(target, tuple(map_refs(value, type_of) for value in arguments), keywords)

    def _name(self, target: str) -> str:
        stem = target.split(".")[1] if "." in target else target
        return next(name for n in self._fresh if (name := f"{stem}_new{n}") not in self._nodes)

    def replace(self, old: Ref, new: Ref) -> None:
        """Let everything that reads ``old`` read ``new``, apart from what ``new`` itself is made of."""
        below = self._below(new.node)
        for name in sorted(self._users[old.node] - below):
            self._rewire(name, lambda ref: new if ref == old else ref)

    def rewire(self, name: str, *arguments: Argument) -> None:
        """Give the node other arguments, of the same types."""
        node = self._nodes[name]
        self._store(node, replace(node, arguments=arguments))

    def _below(self, name: str) -> set[str]:
        """Return the new nodes that ``name`` is made of, itself among them."""
        found, waiting = {name}, [name]
        while waiting:
            for source in self._nodes[waiting.pop()].inputs:
                if source in self._made and source not in found:
                    found.add(source)
                    waiting.append(source)
        return found

    def _rewire(self, name: str, change: Callable[[Ref], Ref]) -> None:
        node = self._nodes[name]
        arguments = map_refs(node.arguments, change)
        keywords = tuple((key, map_refs(value, change)) for key, value in node.keywords)
        self._store(node, replace(node, arguments=arguments, keywords=keywords))

    def _store(self, old: GraphNode, new: GraphNode) -> None:
        for source in old.inputs:
            self._users[source].discard(old.name)
        for source in new.inputs:
            self._users[source].add(old.name)
        self._nodes[old.name] = new

    def remove(self, name: str) -> None:
        """Take out a node that nobody reads."""
        assert not self._users[name], f"{name} is read by {sorted(self._users[name])}"
        node = self._nodes.pop(name)
        del self._users[name], self._place[name]
        self._made.pop(name, None)
        for source in node.inputs:
            self._users[source].discard(name)

    def finish(self) -> Graph:
        """Return the changed graph in a legal order, without what it stopped needing.

        Dead nodes of the original stay, and the types below a change are inferred again. Raises ``IllTyped``
        where an op cannot read its new arguments (a view of results in another memory layout), ``ValueError``
        on a cycle.
        """
        ordered = Graph(tuple(self._nodes[name] for name in self._order()))
        needed = reachable_from(ordered, [node.name for node in ordered.nodes if node.anchored])
        kept = needed | {
            name for name in self.graph.by_name if name not in self.graph.live and name in ordered.by_name
        }
        kept = reachable_from(ordered, sorted(kept))
        return Graph(tuple(self._retyped([node for node in ordered.nodes if node.name in kept])))

    def _retyped(self, nodes: list[GraphNode]) -> list[GraphNode]:
        """Return the nodes with the types that follow from their arguments' new ones."""
        made: dict[str, GraphNode] = {}
        changed: set[str] = set()
        for node in nodes:
            known = self.graph.by_name.get(node.name)
            stale = (known is not None and node.refs != known.refs) or not changed.isdisjoint(node.inputs)
            if node.kind == OP and stale:
                outputs = self._signature(
                    node.target, node.arguments, node.keywords, lambda ref: made[ref.node].outputs[ref.output]
                ).outputs
                if outputs != node.outputs:
                    changed.add(node.name)
                node = replace(node, outputs=outputs)
            made[node.name] = node
        return list(made.values())

    def _order(self) -> list[str]:
        """Topological, the lowest place first."""
        waits = {name: len(node.inputs) for name, node in self._nodes.items()}
        rank = {name: number for number, name in enumerate(self._nodes)}
        ready = [(self._place[name], rank[name], name) for name, count in waits.items() if not count]
        heapq.heapify(ready)
        order: list[str] = []
        while ready:
            order.append(heapq.heappop(ready)[2])
            for user in self._users[order[-1]]:
                waits[user] -= 1
                if not waits[user]:
                    heapq.heappush(ready, (self._place[user], rank[user], user))
        if len(order) < len(self._nodes):
            raise ValueError("the rewritten graph has a cycle")
        return order
