"""Linear layers over the same input as one product of their stacked weights, split again (the classic rewrite
of query, key and value projections; TASO, SOSP 2019, section 2; rTensorFlow's and Megatron-LM's fused QKV).

Widths may differ (grouped-query attention) and biases may be partly absent: zeros stand in for a missing one.
For inference the weights are stacked once; in training they are stacked inside the pass, so that every
parameter keeps its own gradient and optimizer state. The results are views of the wide output; where a reader
cannot take a view a copy is made and paid for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from experiments.compilation.interface import (
    Applied,
    Draft,
    Graph,
    GraphNode,
    IllTyped,
    Ref,
    RewritePolicy,
    Rewritten,
    Symbol,
    Workbench,
)
from experiments.core.knobs import knob

LINEAR = "aten.linear.default"


@dataclass(frozen=True)
class ConcatQkv(RewritePolicy):
    """Stacks the linear layers that read one input into one product."""

    name: ClassVar[str] = "concat_qkv"
    mechanism: ClassVar[str] = "rewrite the graph"

    gate: bool = knob(False, "keep a merge only where the ops' prices say that it is faster")

    def rewrite(self, graph: Graph, bench: Workbench) -> Rewritten:
        refused = {node.name: reason for node in linears(graph) if (reason := obstacle(node, graph))}
        applied: list[Applied] = []
        now = graph
        for group in groups(graph, refused):
            merged = merge(now, [now.by_name[name] for name in group], bench)
            if self.gate and bench.cost(merged) >= bench.cost(now):
                refused |= dict.fromkeys(group, "one wide product is no faster")
                continue
            made = tuple(node.name for node in merged.ops if node.name not in now.by_name)
            applied.append(Applied("linears over one input", group, made))
            now = merged
        return Rewritten(now, tuple(applied), refused)


def linears(graph: Graph) -> list[GraphNode]:
    """Linear layers whose input another one reads too."""
    found = [node for node in graph.ops if node.target == LINEAR]
    inputs = [node.refs[0] for node in found]
    return [node for node, ref in zip(found, inputs, strict=True) if inputs.count(ref) > 1]


def obstacle(node: GraphNode, graph: Graph) -> str:
    """Why this layer may not be stacked with others; empty when it may."""
    if node.once:
        return "it is computed once already"
    for ref in node.refs[1:]:
        weight = graph.by_name[ref.node]
        if weight.name not in graph.unwritten_constants:
            return "its weight is not a constant"
        if len(graph.users[weight.name]) > 1:
            return "its weight is tied to another op's"
        if weight.dtype != graph.type(node.refs[0]).dtype:
            return f"its weight is {weight.dtype}, its input {graph.type(node.refs[0]).dtype}"
    return ""


def groups(graph: Graph, refused: Sequence[str] | dict[str, str]) -> list[tuple[str, ...]]:
    """Return names of the layers of each merge, in order of use."""
    by_input: dict[Ref, list[str]] = {}
    for node in linears(graph):
        if node.name not in refused:
            by_input.setdefault(node.refs[0], []).append(node.name)
    return [tuple(names) for names in by_input.values() if len(names) > 1]


def merge(graph: Graph, members: Sequence[GraphNode], bench: Workbench) -> Graph:
    """Return ``graph`` with the members as one; with copies of the parts if a reader cannot take views."""
    try:
        return _merge(graph, members, bench, copies=False)
    except IllTyped:
        return _merge(graph, members, bench, copies=True)


def _merge(graph: Graph, members: Sequence[GraphNode], bench: Workbench, copies: bool) -> Graph:
    draft = Draft(graph, bench.types)
    weight = draft.op("aten.cat.default", tuple(node.refs[1] for node in members), once=True)
    widths = tuple(node.shape[-1] for node in members)
    wide = draft.op(LINEAR, members[0].refs[0], weight, _bias(draft, members))
    parts = draft.op("aten.split_with_sizes.default", wide, widths, -1)
    for number, node in enumerate(members):
        part = Ref(parts.node, number)
        if copies:
            part = draft.op(
                "aten.clone.default", part, memory_format=Symbol("memory_format", "contiguous_format")
            )
        draft.replace(Ref(node.name), part)
    return draft.finish()


def _bias(draft: Draft, members: Sequence[GraphNode]) -> Ref | None:
    """Return the biases one after another, zeros where a layer has none; ``None`` if none has."""
    found = [node.refs[2] if len(node.refs) > 2 else None for node in members]
    if not any(found):
        return None
    some = next(ref for ref in found if ref)
    rows = [
        ref or draft.op("aten.new_zeros.default", some, (node.shape[-1],), once=True)
        for ref, node in zip(found, members, strict=True)
    ]
    return draft.op("aten.cat.default", tuple(rows), once=True)
