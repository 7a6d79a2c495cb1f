"""Records as a ``torch.fx`` graph again: the same ops on the same constants."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Set
from typing import Any

import torch
from torch import Tensor, fx, nn

from experiments.compilation.interface import (
    CONSTANT,
    INPUT,
    OUTPUT,
    Graph,
    GraphNode,
    Ref,
    TensorType,
)
from experiments.compilation.live.types import constant, function, gives_several


def lower(graph: Graph, origin: fx.GraphModule, gradients: bool = False) -> fx.GraphModule:
    """Return ``graph`` with constants and calling convention of ``origin``, the module that was exported.

    Nodes marked ``once`` are computed here and stand as constants; what the caller gets of them is a copy.
    For ``gradients`` they stay ops, so that gradients flow through them to the parameters, and buffers that
    the graph writes to are read through a copy, because autograd keeps what was read.
    """
    values = {} if gradients else compute_constants(graph, origin)
    attributes = {
        node.target: attribute(origin, node.target) for node in graph.nodes if node.kind == CONSTANT
    }
    written = {name for name in graph.written if graph.by_name[name].kind == CONSTANT}
    copied = graph.handed_out & {ref.node for ref in values}
    made = _Lowering(values, attributes, copied | (written if gradients else set()))
    for node in graph.nodes:
        made.add(node)
    made.graph.set_codegen(origin.graph._codegen)
    module = fx.GraphModule(made.attributes, made.graph)
    _remove_unread(module)
    module.graph.lint()
    module.recompile()
    module.train(origin.training)
    return module


def parameters_of(module: nn.Module, original: nn.Module) -> dict[str, Tensor]:
    """Return the parameters by the original's names: exporting may keep another name of a tied one."""
    names = {value.data_ptr(): name for name, value in original.named_parameters()}
    return {names.get(value.data_ptr(), name): value for name, value in module.named_parameters()}


def attribute(origin: fx.GraphModule, path: str) -> Any:
    return fx.graph_module._get_attr(origin, path)


class _Lowering:
    """The graph being made, with the fx node of every result so far."""

    def __init__(self, values: Mapping[Ref, Any], attributes: Mapping[str, Any], copied: Set[str]) -> None:
        self.graph = fx.Graph()
        self.attributes = dict(attributes)
        self._values = values
        self._copied = copied
        self._own: dict[Ref, fx.Node] = {}
        self._nodes: dict[Ref, fx.Node] = {}

    def add(self, node: GraphNode) -> None:
        if node.once and self._values:
            self._add_values(node)
        elif node.kind == OUTPUT:
            self.graph.output(self._resolve(node.arguments[0]))
        else:
            self._add_results(node, self._lower_node(node))

    def _lower_node(self, node: GraphNode) -> fx.Node:
        if node.kind == INPUT:
            return self.graph.create_node("placeholder", node.target, name=node.name)
        if node.kind == CONSTANT:
            return self.graph.create_node("get_attr", node.target, name=node.name)
        keywords = {name: self._resolve(value) for name, value in node.keywords}
        arguments = tuple(self._resolve(value, node.mutates) for value in node.arguments)
        return self.graph.create_node(
            "call_function", function(node.target), arguments, keywords, name=node.name
        )

    def _add_results(self, node: GraphNode, made: fx.Node) -> None:
        several = made.op == "call_function" and gives_several(made.target)
        kinds = [_meta(out) for out in node.outputs]
        made.meta["val"] = tuple(kinds) if several else next(iter(kinds), None)
        self._nodes[Ref(node.name)] = self._own[Ref(node.name)] = made
        if node.name in self._copied:
            self._nodes[Ref(node.name)] = self._copy(made)
        for number in range(len(kinds) if several else 0):
            picked = self.graph.call_function(operator.getitem, (made, number))
            picked.meta["val"] = kinds[number]
            self._nodes[Ref(node.name, number)] = picked

    def _add_values(self, node: GraphNode) -> None:
        for number, _ in enumerate(node.outputs):
            ref = Ref(node.name, number)
            if ref not in self._values:
                continue
            name = f"_once_{node.name}_{number}".replace(".", "_")
            self.attributes[name] = self._values[ref]
            made = self.graph.create_node("get_attr", name)
            made.meta["val"] = self._values[ref]
            self._nodes[ref] = self._copy(made) if node.name in self._copied else made

    def _copy(self, made: fx.Node) -> fx.Node:
        copy = self.graph.call_function(torch.ops.aten.clone.default, (made,))
        copy.meta["val"] = made.meta["val"]
        return copy

    def _resolve(self, value: Any, writes: bool = False) -> Any:
        if isinstance(value, Ref):
            return self._own.get(value, self._nodes[value]) if writes else self._nodes[value]
        if isinstance(value, tuple):
            return [self._resolve(entry, writes) for entry in value]
        return constant(value)


def _meta(kind: TensorType | None) -> Tensor | None:
    if kind is None:
        return None
    return torch.empty_strided(kind.shape, kind.stride, dtype=getattr(torch, kind.dtype), device="meta")


def _remove_unread(module: fx.GraphModule) -> None:
    """Selections and constants that nothing reads; ops stay, read or not."""
    for node in reversed(module.graph.nodes):
        if not node.users and (node.op == "get_attr" or node.target is operator.getitem):
            module.graph.erase_node(node)
    module.delete_all_unused_submodules()


@torch.no_grad()
def compute_constants(graph: Graph, origin: fx.GraphModule) -> dict[Ref, Any]:
    """Return the values of all nodes marked ``once``.

    Those that only others of them read are let go of.
    """
    values: dict[Ref, Any] = {}
    for node in graph.nodes:
        if node.kind == CONSTANT:
            found = attribute(origin, node.target)
            values[Ref(node.name)] = found.detach() if isinstance(found, Tensor) else found
        elif node.once:
            call(node, values)
            for done in _done_with(node, graph):
                for number in range(len(graph.by_name[done].outputs)):
                    values.pop(Ref(done, number), None)
    return {ref: value for ref, value in values.items() if graph.by_name[ref.node].once}


def _done_with(node: GraphNode, graph: Graph) -> list[str]:
    """What only nodes computed once read, ``node`` the last of them."""
    read = {name: graph.users[name] for name in node.inputs}
    return [name for name, users in read.items() if users[-1] is node and all(user.once for user in users)]


def call(node: GraphNode, values: dict[Ref, Any]) -> None:
    """Carry out one op on ``values`` and put its results there."""

    def resolve(value: Any) -> Any:
        if isinstance(value, tuple):
            return [resolve(entry) for entry in value]
        return values[value] if isinstance(value, Ref) else constant(value)

    keywords = {name: resolve(value) for name, value in node.keywords}
    op = function(node.target)
    out = op(*(resolve(value) for value in node.arguments), **keywords)
    several = out if gives_several(op) else (out,)
    values.update((Ref(node.name, number), value) for number, value in enumerate(several))
