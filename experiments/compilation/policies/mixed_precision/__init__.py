"""Mixed precision (Micikevicius et al., ICLR 2018; Kalamkar et al., 2019, for bfloat16).

Products run in a 16-bit type, what loses digits in it runs in float32, and weights keep a float32 master
copy.

The graph is rewritten with casts where torch's own autocast would make them (``autocast``), so each op's type
can be seen, priced and compared; ``torch.autocast`` decides inside the dispatcher and shows none of it. A
weight is cast once; in training the cast stays in the graph and gradients reach the float32 parameter through
it, which is the paper's master copy. Results are cast back to the type that the model gives.

Loss scaling belongs to the training loop: with float16 the training check uses ``GradScaler`` (initial scale
65536, doubled after 2000 good steps, halved on overflow, whose step is skipped). bfloat16 has float32's range
and needs none.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar

from experiments.compilation.interface import (
    Applied,
    Approximation,
    Draft,
    Graph,
    GraphNode,
    Ref,
    RewritePolicy,
    Rewritten,
    Symbol,
    Workbench,
    map_refs,
)
from experiments.compilation.planning.numerics.bounds import half_precision
from experiments.compilation.policies.mixed_precision.autocast import FULL, LOW, WIDEST, rule
from experiments.core.knobs import knob

FULL_TYPE = "float32"


@dataclass(frozen=True)
class MixedPrecision(RewritePolicy):
    """Runs products in bfloat16 or float16 and sensitive ops in float32, by torch's autocast lists."""

    name: ClassVar[str] = "mixed_precision"
    mechanism: ClassVar[str] = "fewer bits"

    dtype: str = knob("bfloat16", "type of products", choices=("bfloat16", "float16"))
    lists: str = knob("cuda", "whose autocast lists", choices=("cuda", "cpu"))
    steps: int = knob(
        20, "training steps compared with float32, where training is asked for", low=1, high=1000
    )

    def rewrite(self, graph: Graph, bench: Workbench) -> Rewritten:
        written = _written_beyond_statistics(graph)
        if written:
            return Rewritten(graph, refused={written: "writes to a tensor that other ops read"})
        work = _Casting(self, Draft(graph, bench.types))
        for node in graph.ops:
            work.visit(node)
        work.restore(graph)
        return Rewritten(
            work.draft.finish(),
            tuple(work.applied),
            exactness="approximate",
            bound=half_precision(self.dtype, work.low),
            search={f"ops in {dtype}": count for dtype, count in sorted(work.types.items())},
            approximation=Approximation(
                casts="" if self._has_type_already(graph) else self.dtype,
                training_steps=self.steps if self.training else 0,
            ),
        )

    def _has_type_already(self, graph: Graph) -> bool:
        """Return whether the model computes in the type already."""
        return any(kind.dtype == self.dtype for node in graph.nodes for kind in node.outputs if kind)


def _written_beyond_statistics(graph: Graph) -> str:
    """Return a node that writes to something else than a statistic.

    A constant that only the op it is updated from reads.
    """
    for node in (node for node in graph.nodes if node.mutates):
        kept, source = (*node.refs, None, None)[:2]
        users = {user.name for user in graph.users[kept.node]} if kept else set()
        alone = source is not None and users <= {node.name, source.node}
        if node.target != "aten.copy_.default" or not alone:
            return node.name
    return ""


@dataclass
class _Casting:
    """Walks the ops in order; ``_now`` says what stands for each original result."""

    policy: MixedPrecision
    draft: Draft
    applied: list[Applied] = field(default_factory=list)
    types: Counter[str] = field(default_factory=Counter)
    low: int = 0
    _now: dict[Ref, Ref] = field(default_factory=dict)
    _remade: list[str] = field(default_factory=list)
    _casts: dict[tuple[Ref, str], Ref] = field(default_factory=dict)

    def visit(self, node: GraphNode) -> None:
        """Give the node what its list says; an op whose arguments change is made anew."""
        wanted = node.dtype if node.mutates else self._wanted_type(node)
        before = len(self.draft.made)

        def read(ref: Ref) -> Ref:
            current = self._now.get(ref, ref)
            return self._cast(current, wanted) if wanted else current

        arguments = map_refs((node.arguments, node.keywords), read)
        made = node.name
        if arguments != (node.arguments, node.keywords):
            made = self._remake(node, *arguments)
            self.applied.append(Applied(wanted or "takes what comes", (node.name,), self.draft.made[before:]))
        self.types[self.draft.node(made).dtype or "no type"] += 1
        self.low += self.draft.node(made).dtype == self.policy.dtype

    def _remake(
        self, node: GraphNode, arguments: tuple[object, ...], keywords: tuple[tuple[str, object], ...]
    ) -> str:
        made = self.draft.op(node.target, *arguments, **dict(keywords)).node  # type: ignore[arg-type]
        self._remade.append(node.name)
        for number in range(len(node.outputs)):
            self._now[Ref(node.name, number)] = Ref(made, number)
        return made

    def _wanted_type(self, node: GraphNode) -> str:
        """Return the type that the node's floating point arguments should have; "" for as they are."""
        kind = rule(node.target, self.policy.lists)
        if kind == WIDEST:
            read = {self._type(self._now.get(ref, ref)) for ref in node.refs}
            return FULL_TYPE if FULL_TYPE in read and self.policy.dtype in read else ""
        return {LOW: self.policy.dtype, FULL: FULL_TYPE}.get(kind, "")

    def _type(self, ref: Ref) -> str:
        kind = self.draft.type(ref)
        return "" if kind is None else str(kind.dtype)

    def _cast(self, ref: Ref, dtype: str) -> Ref:
        """Return ``ref`` in ``dtype``, cast once however often it is read; float64 and whole numbers stay."""
        if self._type(ref) == dtype or self._type(ref) not in (FULL_TYPE, self.policy.dtype):
            return ref
        if (ref, dtype) not in self._casts:
            source = self.draft.node(ref.node)
            once = source.name in self.draft.graph.unwritten_constants or source.once
            self._casts[ref, dtype] = self.draft.op(
                "aten._to_copy.default", ref, dtype=Symbol("dtype", dtype), once=once
            )
        return self._casts[ref, dtype]

    def restore(self, graph: Graph) -> None:
        """Let the output give the types that it gave.

        What was made anew goes, also where it counts as random.
        """
        for ref in dict.fromkeys(graph.output.refs):
            now = self._now.get(ref, ref)
            if now != ref:
                self.draft.replace(ref, self._cast(now, graph.type(ref).dtype))
        for name in reversed(self._remade):
            self.draft.remove(name)
