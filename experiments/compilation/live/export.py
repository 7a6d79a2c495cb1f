"""A module in evaluation mode as a functional ATen graph, and that graph as the records that policies see."""

from __future__ import annotations

import operator
import warnings
from typing import Any

import torch
from torch import fx, nn

from experiments.compilation.interface import Graph, Node

KINDS = {"placeholder": "input", "get_attr": "constant", "output": "output"}


def export(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> fx.GraphModule:
    """``module`` exported and functionalized: parameters are attributes, no op mutates what it reads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        program = torch.export.export(module, inputs, strict=False).run_decompositions({})
        graph_module = program.module()
    for node in list(graph_module.graph.nodes):
        if node.op == "call_module" and not node.users:  # export's own check of the input sizes
            graph_module.graph.erase_node(node)
    graph_module.recompile()
    assert isinstance(graph_module, fx.GraphModule)
    return graph_module


def records(graph_module: fx.GraphModule) -> Graph:
    """The graph as plain records, in execution order."""
    return Graph(tuple(_record(node, graph_module) for node in graph_module.graph.nodes))


def _record(node: fx.Node, owner: fx.GraphModule) -> Node:
    value = node.meta.get("val")
    if node.op == "get_attr":
        value = fx.graph_module._get_attr(owner, str(node.target))
    tensor = value if isinstance(value, torch.Tensor) else None
    return Node(
        name=node.name,
        kind=KINDS.get(node.op, "op"),
        target=str(node.target) if node.target is not operator.getitem else "getitem",
        inputs=tuple(source.name for source in node.all_input_nodes),
        arguments=_spelled(node),
        shape=() if tensor is None else tuple(int(size) for size in tensor.shape),
        dtype="" if tensor is None else str(tensor.dtype).removeprefix("torch."),
        bytes=0 if tensor is None else tensor.numel() * tensor.element_size(),
        random=is_random(node),
        mutates=mutates(node),
    )


def _spelled(node: fx.Node) -> str:
    """Arguments with ``%name`` for nodes; keyword arguments sorted."""
    positional = fx.node.map_arg(node.args, lambda source: _Name(source.name))
    named = sorted(fx.node.map_arg(node.kwargs, lambda source: _Name(source.name)).items())
    return repr(tuple(positional)) + (repr(named) if named else "")


class _Name(str):
    def __repr__(self) -> str:
        return "%" + str(self)


def is_random(node: fx.Node) -> bool:
    """Whether the op draws from a generator."""
    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags


def mutates(node: fx.Node) -> bool:
    """Whether the op writes to one of its arguments; an op whose schema is unknown counts as one that does."""
    if node.op != "call_function" or node.target is operator.getitem:
        return node.op in ("call_method", "call_module")
    schema: Any = getattr(node.target, "_schema", None)
    return schema is None or bool(schema.is_mutable)
