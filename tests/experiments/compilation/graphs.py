"""Graphs by hand, and policies carried out on small modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from experiments.compilation.interface import (
    CONSTANT,
    INPUT,
    OP,
    OUTPUT,
    Graph,
    GraphNode,
    ObservedRanges,
    Ref,
    RewritePolicy,
    Rewritten,
    Signature,
    TensorType,
    contiguous,
)
from experiments.core.progress import silent


def kind(*shape: int, dtype: str = "float32") -> TensorType:
    return TensorType(shape, dtype, contiguous(shape))


def node(name: str, target: str, *inputs: str, size: int = 1, **flags: Any) -> GraphNode:
    """An op on whole results; a leading ``-`` in ``target`` makes it a constant."""
    refs = tuple(Ref(source) for source in inputs)
    if target.startswith("-"):
        return GraphNode(name, CONSTANT, target[1:], outputs=(kind(size),))
    return GraphNode(name, OP, target, refs, outputs=(kind(size),), **flags)


def graph(*nodes: GraphNode, reads: tuple[str, ...]) -> Graph:
    """Input ``x``, the nodes, and an output that reads ``reads``."""
    x = GraphNode("x", INPUT, "x", outputs=(kind(1),))
    return Graph((x, *nodes, GraphNode("output", OUTPUT, "output", (tuple(Ref(name) for name in reads),))))


class ByHand:
    """A workbench without torch: every op gives what its first argument is, and costs a second."""

    progress = staticmethod(silent)
    rules = None

    def types(self, target: str, arguments: tuple[Any, ...], keywords: Any) -> Signature:
        return Signature((next(a for a in arguments if isinstance(a, TensorType)),))

    def ranges(self, refs: Sequence[Ref], rule: str, batches: int, symmetric: bool) -> ObservedRanges:
        return ObservedRanges(tuple(range(batches)), dict.fromkeys(refs, (-1.0, 1.0)))

    def seconds(self, node: GraphNode, graph: Graph) -> float:
        return float(node.kind == OP and not node.once)

    def cost(self, graph: Graph) -> float:
        return sum(self.seconds(node, graph) for node in graph.ops if node.name in graph.live)


def by_hand(policy: RewritePolicy, of: Graph) -> Rewritten:
    return policy.rewrite(of, ByHand())


def took(rewritten: Rewritten) -> list[tuple[str, ...]]:
    return [step.took for step in rewritten.applied]


def targets(of: Graph) -> list[str]:
    return [node.target for node in of.ops if not node.once]


def module_of(body: Callable[..., Any]) -> Any:
    """A module without parameters."""
    from torch import nn

    class Calls(nn.Module):
        def forward(self, *inputs: Any) -> Any:
            return body(*inputs)

    return Calls()


def rewritten(module: Any, policy: RewritePolicy, *inputs: Any) -> tuple[Rewritten, Any, Any]:
    """What the policy did to the module in evaluation mode (or training, as it says), what it became, and
    whether that is right.
    """
    from experiments.compilation.live.backends.base import Compiled, Task
    from experiments.compilation.live.costs import Bench, MeasuredPrices
    from experiments.compilation.live.lower import lower
    from experiments.compilation.live.types import Inference
    from experiments.compilation.live.verify import verify

    task = Task(module.train(policy.training), inputs, "cpu", training=policy.training)
    done = policy.rewrite(task.graph, Bench(Inference(), MeasuredPrices("cpu")))
    lowered = lower(done.graph, task.origin, gradients=policy.training)
    parameters = dict(lowered.named_parameters()) if policy.training else None
    bound = done.bound if done.exactness == "approximate" else 0.0
    return done, lowered, verify(task, Compiled(lowered, 0.0, 0.0, parameters=parameters), 0, bound)
