"""A model as one graph of ATen ops, and which stage of a plan each op belongs to."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from experiments.core.errors import LabError
from experiments.parallel.interface import ParallelPlan
from experiments.parallel.live import leaves
from experiments.parallel.live.layouts import lay_out
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
    """A tensor that stage ``source`` makes and stage ``target`` reads. ``differentiable`` ones send gradients back.

    ``along`` is the dimension along which each rank of a worker has a piece; ``None``: each has the whole.
    """

    number: int
    node: fx.Node
    source: int
    target: int
    differentiable: bool
    along: int | None

    def shape(self, ranks: int) -> torch.Size:
        """On one of the ``ranks`` of a worker."""
        sizes = list(self.node.meta["val"].shape)
        if self.along is not None:
            sizes[self.along] //= ranks
        return torch.Size(sizes)

    @property
    def dtype(self) -> torch.dtype:
        found: torch.dtype = self.node.meta["val"].dtype
        return found


@dataclass(frozen=True)
class Cut:
    """The graph of one micro-batch. Placeholders and parameters belong to no stage: every rank has them or its own.

    ``opaque`` are the layers that are one op of the graph, by their path.
    """

    module: fx.GraphModule
    opaque: Mapping[str, nn.Module]
    stage_of: dict[fx.Node, int]
    crossings: tuple[Crossing, ...]
    loss: fx.Node

    def nodes(self, stage: int) -> list[fx.Node]:
        return [node for node in self.module.graph.nodes if self.stage_of.get(node) == stage]

    def parameters(self, stage: int) -> dict[str, nn.Parameter]:
        """The parameters that a stage's ops read; of tied ones under the name under which torch lists them."""
        nodes = self.nodes(stage)
        names = {parameter: name for name, parameter in reversed(self._named())}
        used = dict.fromkeys(source for node in nodes for source in node.all_input_nodes)
        read = [operator.attrgetter(str(node.target))(self.module) for node in used if node.op == "get_attr"]
        for path in filter(None, map(opaque_path, nodes)):
            read += self.opaque[path].parameters()
        return {names[value]: value for value in read if isinstance(value, nn.Parameter)}

    def _named(self) -> list[tuple[str, nn.Parameter]]:
        inside = [
            (f"{path}.{name}", parameter)
            for path, module in self.opaque.items()
            for name, parameter in module.named_parameters()
        ]
        return [*self.module.named_parameters(), *inside]

    def run(self, stage: int, values: dict[fx.Node, Any], convert: Callable[..., Tensor]) -> None:
        """Execute a stage's ops in order; ``values`` has every input and receives every result.

        ``convert`` carries out ``leaves.converted`` among the ranks of a worker.
        """

        def value(node: fx.Node) -> Any:
            if node.op == "get_attr" and node not in values:
                return operator.attrgetter(str(node.target))(self.module)
            return values[node]

        for node in self.nodes(stage):
            path = opaque_path(node)
            function = node.target if path is None else self.opaque[path]
            function = convert if function is leaves.converted else function
            arguments = fx.node.map_arg(node.args if path is None else node.args[:1], value)
            assert callable(function)
            values[node] = function(*arguments, **fx.node.map_arg(node.kwargs, value))


def opaque_path(node: fx.Node) -> str | None:
    """The path of the layer for which ``node`` stands, if it stands for one."""
    return str(node.args[1]) if node.target is leaves.OP else None


def cut(made: Built, plan: ParallelPlan, layers: tuple[str, ...]) -> Cut:
    """Trace one micro-batch and give each op the stage of its layer. Layers that the plan shards stay opaque.

    An op outside every layer (a residual sum, a loss) joins the latest stage among its inputs; no op is earlier than
    its inputs, so data flow forward only.
    """
    example = made.micro_batch(0, plan.micro_batch_samples)
    shardings = {layers[s.layer]: s for s in plan.shardings if s.compute > 1 or s.parameters > 1}
    opaque = {
        path: part
        for path, part in made.module.named_modules()
        if unwrapped(path) in shardings and any(True for _ in part.parameters())
    }
    with leaves.stubs(made.module, leaves.outputs_of(made.module, list(opaque), example)):
        module = torch.export.export(made.module, example, strict=False).module(check_guards=False)
    assert isinstance(module, fx.GraphModule)
    along = lay_out(module.graph, {path: shardings[unwrapped(path)] for path in opaque})
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
    return Cut(module, opaque, stage_of, _crossings(stage_of, along), loss)


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


def _crossings(stage_of: dict[fx.Node, int], along: dict[fx.Node, int]) -> tuple[Crossing, ...]:
    found: list[Crossing] = []
    for node, source in stage_of.items():
        for target in sorted({stage_of[user] for user in node.users if user in stage_of} - {source}):
            value = node.meta["val"]
            if not isinstance(value, Tensor):
                raise LabError(f"{node.name} crosses from stage {source} to {target} and is no tensor")
            found.append(
                Crossing(len(found), node, source, target, value.is_floating_point(), along.get(node))
            )
    return tuple(found)
