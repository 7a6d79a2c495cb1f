"""Common subexpression elimination by value numbering (Alpern, Wegman, Zadeck, POPL 1988; Muchnick, section 12.4).

Two ops get the same number when op and numbered arguments are equal; the later one's uses go to the earlier. What the
textbook leaves open on tensor graphs: an op that draws random numbers is never equal to another, and an op that
mutates ends the numbering of everything (aliases are not tracked, so every tensor may have changed).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from experiments.compilation.interface import CompilationPolicy, Graph, Node, Pass, Recipe

#: Ops whose first two arguments may be swapped without changing a bit of the result.
COMMUTATIVE = ("aten.add.Tensor", "aten.mul.Tensor", "aten.maximum.default", "aten.minimum.default")


def value_numbers(graph: Graph) -> list[list[str]]:
    """Classes of op nodes with equal value, each in execution order."""
    survivor: dict[str, str] = {}
    classes: dict[tuple[int, str, str], list[str]] = {}
    epoch = 0
    for node in graph.ops:
        if node.mutates:
            epoch += 1
        if node.mutates or node.random:
            continue
        key = (epoch, node.target, _arguments(node, survivor))
        same = classes.setdefault(key, [])
        same.append(node.name)
        survivor[node.name] = same[0]
    return list(classes.values())


def _arguments(node: Node, survivor: dict[str, str]) -> str:
    """The arguments with every node replaced by the first of its class."""
    text = re.sub(r"%([\w.]+)", lambda match: "%" + survivor.get(match[1], match[1]), node.arguments)
    swap = re.fullmatch(r"\((%[\w.]+), (%[\w.]+)\)", text)
    if node.target in COMMUTATIVE and swap:
        return str(sorted(swap.groups()))
    return text


@dataclass(frozen=True)
class Cse(CompilationPolicy):
    """Computes equal subexpressions once; random and mutating ops are barriers."""

    name: ClassVar[str] = "cse"

    def recipe(self, graph: Graph) -> Recipe:
        groups = tuple(tuple(group) for group in value_numbers(graph) if len(group) > 1)
        kept = {node.name: "draws random numbers" for node in graph.ops if node.random}
        kept |= {node.name: "mutates a tensor" for node in graph.ops if node.mutates}
        return Recipe(passes=(Pass("cse", groups, kept),))
