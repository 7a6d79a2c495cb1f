"""A matrix product and the addition behind it as one op (``addmm``, ``baddbmm``, a linear layer with a bias).

The intermediate product is neither written nor read again: 2 M N elements of traffic are saved (Williams et
al., Roofline, CACM 2009, for why that is time). Refused where the sum would be another: the product is read
elsewhere too, the addend would widen it or has another type, or the addition scales its addend.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.compilation.interface import (
    Applied,
    Argument,
    Draft,
    Graph,
    GraphNode,
    Ref,
    RewritePolicy,
    Rewritten,
    Workbench,
)

ADD = "aten.add.Tensor"
PRODUCTS = ("aten.mm.default", "aten.bmm.default", "aten.matmul.default", "aten.linear.default")


@dataclass(frozen=True)
class FuseMatmulAdd(RewritePolicy):
    """Joins each matrix product with the addition that alone reads it."""

    name: ClassVar[str] = "fuse_matmul_add"
    mechanism: ClassVar[str] = "rewrite the graph"

    def rewrite(self, graph: Graph, bench: Workbench) -> Rewritten:
        draft = Draft(graph, bench.types)
        applied: list[Applied] = []
        refused: dict[str, str] = {}
        taken: set[str] = set()
        for addition in (node for node in graph.ops if node.target == ADD):
            found = products_of(addition, graph)
            reasons = [obstacle(*pair, addition, graph) for pair in found]
            free = [
                p for p, reason in zip(found, reasons, strict=True) if not reason and p[0].name not in taken
            ]
            if free:
                product, addend = free[0]
                made = fuse(draft, product, addend)
                draft.replace(Ref(addition.name), made)
                taken.add(product.name)
                applied.append(Applied("matmul+add", (product.name, addition.name), (made.node,)))
            elif any(reasons):
                refused[addition.name] = next(filter(None, reasons))
        return Rewritten(draft.finish(), tuple(applied), refused, exactness="reassociated")


def products_of(addition: GraphNode, graph: Graph) -> list[tuple[GraphNode, Argument]]:
    """Return the products that the addition reads, each with what is added to it."""
    left, right = addition.arguments[:2]
    pairs = [(left, right), (right, left)]
    found = [(graph.by_name[one.node], other) for one, other in pairs if isinstance(one, Ref)]
    return [(node, other) for node, other in found if node.target in PRODUCTS]


def obstacle(product: GraphNode, addend: Argument, addition: GraphNode, graph: Graph) -> str:
    """Why the two cannot be one op; empty when they can."""
    if product.once:
        return "the product is computed once already"
    if addition.keyword("alpha", 1) != 1:
        return f"the addend is scaled by {addition.keyword('alpha')}"
    if len(graph.readers[Ref(product.name)]) > 1 or addition.refs.count(Ref(product.name)) > 1:
        return "the product is read elsewhere too"
    if not isinstance(addend, Ref):
        return "adds a number, which no fused op takes"
    kind = graph.type(addend)
    if kind.dtype != product.dtype:
        return f"adds {kind.dtype} to {product.dtype}"
    if addition.shape != product.shape:
        return f"the addend of shape {list(kind.shape)} widens the product of shape {list(product.shape)}"
    if _fused_target(product, kind.shape, graph) is None:
        return f"no fused op adds {list(kind.shape)} to {list(product.shape)}"
    return ""


def _fused_target(product: GraphNode, addend: tuple[int, ...], graph: Graph) -> str | None:
    """Return the op that does both.

    A product of more than two axes is flattened, which an addend must survive.
    """
    ranks = [len(graph.type(ref).shape) for ref in product.refs[:2]]
    vector = len(addend) == 1 and addend[0] == product.shape[-1]
    if product.target == "aten.linear.default":
        bare = len(product.arguments) < 3 or product.arguments[2] is None
        return "aten.linear.default" if bare and vector else None
    if product.target == "aten.bmm.default" or ranks == [3, 3]:
        return "aten.baddbmm.default" if ranks == [3, 3] and len(product.shape) == 3 else None
    if ranks == [2, 2]:
        return "aten.addmm.default"
    flat = vector or addend == product.shape
    return "aten.addmm.default" if ranks[1] == 2 and ranks[0] > 2 and flat else None


def fuse(draft: Draft, product: GraphNode, addend: Argument) -> Ref:
    """One op in the place of product and addition; the result has the product's shape."""
    assert isinstance(addend, Ref)
    left, right = product.refs[:2]
    shape = draft.type(addend).shape
    target = _fused_target(product, shape, draft.graph)
    if target == "aten.linear.default":
        return draft.op(target, left, right, addend)
    if target == "aten.baddbmm.default" and draft.type(left).shape[0] != draft.type(right).shape[0]:
        left, right = (draft.op("aten.expand.default", r, (product.shape[0], -1, -1)) for r in (left, right))
    if len(draft.type(left).shape) == 2 or target == "aten.baddbmm.default":
        return draft.op(str(target), addend, left, right)
    rows = draft.op("aten.reshape.default", left, (-1, draft.type(left).shape[-1]))
    if len(shape) > 1:
        addend = draft.op("aten.reshape.default", addend, (-1, shape[-1]))
    return draft.op("aten.view.default", draft.op(str(target), addend, rows, right), product.shape)
