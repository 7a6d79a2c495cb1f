"""The passes by name: each does to a graph exactly what the recipe's groups say and returns how often it did."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, fx
from torch.nn.utils.fusion import fuse_conv_bn_weights

from experiments.compilation.interface import Pass

Groups = tuple[tuple[str, ...], ...]


def apply(graph_module: fx.GraphModule, step: Pass) -> int:
    """Carry out one pass in place; the number of groups done."""
    done = PASSES[step.name](graph_module, step.groups)
    graph_module.graph.lint()
    graph_module.recompile()
    return done


def _nodes(graph_module: fx.GraphModule) -> dict[str, fx.Node]:
    return {node.name: node for node in graph_module.graph.nodes}


def _merge_equal(graph_module: fx.GraphModule, groups: Groups) -> int:
    by_name = _nodes(graph_module)
    for first, *others in groups:
        for name in others:
            by_name[name].replace_all_uses_with(by_name[first])
    for name in reversed([name for _, *others in groups for name in others]):
        graph_module.graph.erase_node(by_name[name])
    return sum(len(group) - 1 for group in groups)


def _remove(graph_module: fx.GraphModule, groups: Groups) -> int:
    by_name = _nodes(graph_module)
    order = {name: number for number, name in enumerate(by_name)}
    for name in sorted((name for (name,) in groups), key=order.__getitem__, reverse=True):
        graph_module.graph.erase_node(by_name[name])
    return len(groups)


def _fold(graph_module: fx.GraphModule, groups: Groups) -> int:
    """Evaluate the named nodes; those still read by others become constants, the rest vanish."""
    by_name = _nodes(graph_module)
    chosen = [by_name[name] for (name,) in groups]
    values = _evaluate(graph_module, chosen)
    for node in chosen:
        if isinstance(values[node], Tensor) and any(user not in values for user in node.users):
            _replace_by_constant(graph_module, node, values[node])
    for node in reversed(chosen):
        if not node.users:
            graph_module.graph.erase_node(node)
    return len(chosen)


def _evaluate(graph_module: fx.GraphModule, chosen: list[fx.Node]) -> dict[fx.Node, Any]:
    values: dict[fx.Node, Any] = {}

    def value(node: fx.Node) -> Any:
        return values[node] if node in values else constant(graph_module, node)

    with torch.no_grad():
        for node in chosen:
            assert callable(node.target)
            values[node] = node.target(
                *fx.node.map_arg(node.args, value), **fx.node.map_arg(node.kwargs, value)
            )
    return values


def constant(graph_module: fx.GraphModule, node: fx.Node) -> Tensor:
    """The tensor that a ``get_attr`` node names."""
    found = fx.graph_module._get_attr(graph_module, str(node.target))
    assert isinstance(found, Tensor), node
    return found.detach()


def _replace_by_constant(graph_module: fx.GraphModule, node: fx.Node, value: Tensor) -> fx.Node:
    name = f"_folded_{node.name}"
    graph_module.register_buffer(name, value.detach().clone())
    with graph_module.graph.inserting_before(node):
        replacement = graph_module.graph.get_attr(name)
    replacement.meta["val"] = value
    node.replace_all_uses_with(replacement)
    return replacement


def _fold_batch_norm(graph_module: fx.GraphModule, groups: Groups) -> int:
    by_name = _nodes(graph_module)
    for convolution, norm in groups:
        _fold_pair(graph_module, by_name[convolution], by_name[norm])
    return len(groups)


def _fold_pair(graph_module: fx.GraphModule, convolution: fx.Node, norm: fx.Node) -> None:
    """``_native_batch_norm_legit_no_training(x, weight, bias, mean, var, momentum, eps)`` into the convolution."""

    def read(argument: Any) -> Any:
        return constant(graph_module, argument) if isinstance(argument, fx.Node) else argument

    _, gamma, beta, mean, variance, _, eps = norm.args
    bias = convolution.args[2] if len(convolution.args) > 2 else None
    weight = read(convolution.args[1])
    statistics = (read(mean), read(variance), cast(float, eps), read(gamma), read(beta))
    fused = fuse_conv_bn_weights(weight, read(bias), *statistics)
    with graph_module.graph.inserting_before(convolution):
        parameters = []
        for kind, value in zip(("weight", "bias"), fused, strict=True):
            name = f"_{convolution.name}_{kind}"
            graph_module.register_buffer(name, value.detach().clone())
            parameters.append(graph_module.graph.get_attr(name))
            parameters[-1].meta["val"] = value.detach()
    convolution.args = (convolution.args[0], *parameters, *convolution.args[3:])
    for user in list(norm.users):
        assert user.target is operator.getitem and user.args[1] == 0, (
            "only the normalized result is read in evaluation mode"
        )
        user.replace_all_uses_with(convolution)
        graph_module.graph.erase_node(user)
    graph_module.graph.erase_node(norm)


PASSES: Mapping[str, Callable[[fx.GraphModule, Groups], int]] = {
    "cse": _merge_equal,
    "dce": _remove,
    "constant_folding": _fold,
    "fuse_conv_bn": _fold_batch_norm,
}
