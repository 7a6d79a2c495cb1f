"""A model as one graph of ATen ops, and which stage of a plan each op belongs to."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from experiments.core.errors import LabError
from experiments.parallel.interface import ParallelPlan
from experiments.parallel.live.model import Built

#: Wrappers around a network, which a captured step leaves out of its module paths, and its name for what is outside.
WRAPPERS, LOSS = ("body", "inner"), "loss"


def unwrapped(path: str) -> str:
    """A module path as captured steps and layer graphs spell it: ``body.blocks.3`` is ``blocks.3``."""
    parts = path.split(".")
    while parts and parts[0] in WRAPPERS:
        parts = parts[1:]
    return ".".join(parts)


@dataclass(frozen=True)
class Crossing:
    """A tensor that stage ``source`` makes and stage ``target`` reads. ``differentiable`` ones send gradients back."""

    number: int
    node: fx.Node
    source: int
    target: int
    differentiable: bool


@dataclass(frozen=True)
class Cut:
    """The graph of one micro-batch. Placeholders and parameters belong to no stage: every rank has them or its own."""

    module: fx.GraphModule
    stage_of: dict[fx.Node, int]
    crossings: tuple[Crossing, ...]
    loss: fx.Node

    def nodes(self, stage: int) -> list[fx.Node]:
        return [node for node in self.module.graph.nodes if self.stage_of.get(node) == stage]

    def parameters(self, stage: int) -> set[str]:
        """Names of the parameters that a stage's ops read; of tied ones the name under which torch lists them."""
        names = {parameter: name for name, parameter in self.module.named_parameters()}
        used = {source for node in self.nodes(stage) for source in node.all_input_nodes}
        read = [operator.attrgetter(str(node.target))(self.module) for node in used if node.op == "get_attr"]
        return {names[value] for value in read if isinstance(value, nn.Parameter)}


def cut(made: Built, plan: ParallelPlan, layers: tuple[str, ...]) -> Cut:
    """Trace one micro-batch and give each op the stage of its layer.

    An op outside every layer (a residual sum, a loss) joins the latest stage among its inputs; no op is earlier than
    its inputs, so data flow forward only.
    """
    example = made.micro_batch(0, plan.micro_batch_samples)
    module = torch.export.export(made.module, example, strict=False).module(check_guards=False)
    assert isinstance(module, fx.GraphModule)
    stage_of_layer: dict[str, int] = {}
    for number, stage in enumerate(plan.stages):
        for layer in range(stage.begin, stage.end):
            stage_of_layer.setdefault(layers[layer], number)
    stage_of: dict[fx.Node, int] = {}
    for node in module.graph.nodes:
        if node.op == "call_function":
            inputs = [stage_of.get(source, 0) for source in node.all_input_nodes]
            stage_of[node] = max([_named_stage(node, stage_of_layer), *inputs])
    (result,) = [node for node in module.graph.nodes if node.op == "output"]
    (loss,) = result.all_input_nodes
    if set(stage_of.values()) != set(range(len(plan.stages))):
        raise LabError(f"stages {sorted(set(range(len(plan.stages))) - set(stage_of.values()))} hold no op")
    return Cut(module, stage_of, _crossings(stage_of), loss)


def _named_stage(node: fx.Node, stage_of_layer: dict[str, int]) -> int:
    """The stage of the innermost module around ``node`` that is a layer of the plan; 0 outside every layer.

    Layers are named without the wrappers around a model; what the outermost module computes itself is ``loss``.
    """
    paths = [str(path) for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
    if paths and not any(paths):
        return stage_of_layer.get(LOSS, 0)
    for path in reversed(paths):
        parts = unwrapped(path).split(".")
        for length in range(len(parts), 0, -1):
            name = ".".join(parts[:length])
            if name in stage_of_layer:
                return stage_of_layer[name]
    return 0


def _crossings(stage_of: dict[fx.Node, int]) -> tuple[Crossing, ...]:
    found: list[Crossing] = []
    for node, source in stage_of.items():
        for target in sorted({stage_of[user] for user in node.users if user in stage_of} - {source}):
            value = node.meta["val"]
            if not isinstance(value, Tensor):
                raise LabError(f"{node.name} crosses from stage {source} to {target} and is no tensor")
            found.append(Crossing(len(found), node, source, target, value.is_floating_point()))
    return tuple(found)


def run_nodes(module: nn.Module, nodes: list[fx.Node], values: dict[fx.Node, Any]) -> None:
    """Execute ``nodes`` in order; ``values`` has every input and receives every result."""

    def value(node: fx.Node) -> Any:
        if node.op == "get_attr" and node not in values:
            return operator.attrgetter(str(node.target))(module)
        return values[node]

    for node in nodes:
        arguments = fx.node.map_arg(node.args, value)
        keywords = fx.node.map_arg(node.kwargs, value)
        assert callable(node.target)
        values[node] = node.target(*arguments, **keywords)
