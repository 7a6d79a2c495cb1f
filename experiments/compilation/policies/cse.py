"""Common subexpression elimination by value numbering (Alpern, Wegman, Zadeck, POPL 1988).

Also: Muchnick, section 12.4.

Two ops get the same number when op and numbered arguments are equal; the later one's uses go to the earlier.
What the textbook leaves open on tensor graphs: an op that draws random numbers is never equal to another, and
an op that mutates ends the numbering of everything (aliases are not tracked, so every tensor may have
changed).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from experiments.compilation.interface import (
    Applied,
    Draft,
    Graph,
    GraphNode,
    Ref,
    RewritePolicy,
    Rewritten,
    Workbench,
    map_refs,
)

#: Ops whose first two arguments may be swapped without changing a bit of the result.
COMMUTATIVE = ("aten.add.Tensor", "aten.mul.Tensor", "aten.maximum.default", "aten.minimum.default")


def value_numbers(graph: Graph) -> list[list[str]]:
    """Return classes of op nodes with equal value, each in execution order."""
    survivor: dict[str, str] = {}
    classes: dict[Any, list[str]] = {}
    epoch = 0
    for node in graph.ops:
        epoch += node.mutates
        if node.mutates or node.random or node.effect:
            continue
        same = classes.setdefault((epoch, node.target, *_arguments(node, survivor)), [])
        same.append(node.name)
        survivor[node.name] = same[0]
    return list(classes.values())


def _arguments(node: GraphNode, survivor: dict[str, str]) -> tuple[str, str]:
    """Return the arguments, spelled, with every node replaced by the first of its class."""
    values = map_refs(node.arguments, lambda ref: Ref(survivor.get(ref.node, ref.node), ref.output))
    if node.target in COMMUTATIVE and len(values) == 2 and all(isinstance(v, Ref) for v in values):
        values = tuple(sorted(values, key=repr))
    named = map_refs(node.keywords, lambda ref: Ref(survivor.get(ref.node, ref.node), ref.output))
    return repr(values), repr(named)


@dataclass(frozen=True)
class Cse(RewritePolicy):
    """Computes equal subexpressions once; random and mutating ops are barriers."""

    name: ClassVar[str] = "cse"
    mechanism: ClassVar[str] = "rewrite the graph"

    def rewrite(self, graph: Graph, bench: Workbench) -> Rewritten:
        draft = Draft(graph, bench.types)
        applied = []
        for first, *others in value_numbers(graph):
            for name in others:
                for number in range(len(graph.by_name[name].outputs)):
                    draft.replace(Ref(name, number), Ref(first, number))
            applied += [Applied("equal", (name,), (first,)) for name in others]
        for name in reversed([taken for step in applied for taken in step.took]):
            draft.remove(name)
        refused = {node.name: "draws random numbers" for node in graph.ops if node.random}
        refused |= {node.name: "mutates a tensor" for node in graph.ops if node.mutates}
        return Rewritten(draft.finish(), tuple(applied), refused)
