"""A model as one graph of ATen ops, and which stage of a plan each op belongs to."""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, fx, nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from experiments.core.errors import LabError
from experiments.models.model import Objective
from experiments.parallel.interface import ParallelPlan
from experiments.parallel.interface.recomputation import recomputed_runs
from experiments.parallel.live import leaves
from experiments.parallel.live.layouts import lay_out
from experiments.parallel.live.model import Built

#: Wrappers around a network, which a captured step leaves out of its module paths, and its name for what is
#: outside.
WRAPPERS, LOSS = ("body", "inner"), "loss"


def unwrapped(path: str) -> str:
    """A module path as captured steps and layer graphs spell it: ``body.blocks.3`` is ``blocks.3``."""
    parts = path.split(".")
    while parts and parts[0] in WRAPPERS:
        parts = parts[1:]
    return ".".join(parts)


class Among(Protocol):
    """What the ranks of a worker do together.

    ``leaves.convert_sharding``, and the loss of logits cut along their classes.
    """

    def convert(self, x: Tensor, source: int | None, target: int | None) -> Tensor: ...
    def loss(self, output: Tensor, target: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Crossing:
    """A tensor that stage ``source`` makes and stage ``target`` reads.

    ``differentiable`` ones send gradients back. ``along`` is the dimension along which each rank of a worker
    has a piece; ``None``: each has the whole.
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
class MicroBatchGraph:
    """The graph of one micro-batch, by stages.

    Placeholders and parameters belong to no stage: every rank has them or its own. ``opaque`` are the layers
    that are one op of the graph, by their path, ``calls`` how they are called. ``stage_of`` is in the order
    in which ops are executed, layer by layer; ops with a number in ``again`` are computed again together with
    the others of that number.
    """

    module: fx.GraphModule
    opaque: Mapping[str, nn.Module]
    calls: Mapping[str, leaves.LayerCall]
    stage_of: dict[fx.Node, int]
    again: dict[fx.Node, int]
    crossings: tuple[Crossing, ...]
    loss: fx.Node

    def nodes(self, stage: int) -> list[fx.Node]:
        return [node for node, own in self.stage_of.items() if own == stage]

    def parameters(self, stage: int) -> dict[str, nn.Parameter]:
        """The parameters that a stage's ops read.

        Of tied ones under the name under which torch lists them.
        """
        nodes = self.nodes(stage)
        names = {parameter: name for name, parameter in reversed(self._named_parameters())}
        used = dict.fromkeys(source for node in nodes for source in node.all_input_nodes)
        read = [operator.attrgetter(str(node.target))(self.module) for node in used if node.op == "get_attr"]
        for path in filter(None, map(opaque_path, nodes)):
            read += self.opaque[path].parameters()
        return {names[value]: value for value in read if isinstance(value, nn.Parameter)}

    def _named_parameters(self) -> list[tuple[str, nn.Parameter]]:
        inside = [
            (f"{path}.{name}", parameter)
            for path, module in self.opaque.items()
            for name, parameter in module.named_parameters()
        ]
        return [*self.module.named_parameters(), *inside]

    def run(self, stage: int, values: dict[fx.Node, Any], among: Among | None = None) -> None:
        """Execute a stage's ops in order; ``values`` has every input and receives what is read outside.

        ``among`` is asked for what the ranks of a worker do together.
        """
        for number, nodes in itertools.groupby(self.nodes(stage), key=self.again.get):
            if number is None:
                self._execute(list(nodes), values, among)
            else:
                self._run_checkpointed(list(nodes), values, among)

    def _run_checkpointed(
        self, nodes: list[fx.Node], values: dict[fx.Node, Any], among: Among | None
    ) -> None:
        """Only what ``nodes`` read stays, until all of them are recomputed before their backward pass, as
        planned.
        """
        inside = set(nodes)
        read = dict.fromkeys(source for node in nodes for source in node.all_input_nodes)
        inputs = [source for source in read if source in values and source not in inside]
        outputs = [node for node in nodes if _read_outside(node, inside)]

        def again(*given: Any) -> tuple[Any, ...]:
            own = dict(zip(inputs, given, strict=True))
            self._execute(nodes, own, among)
            return tuple(own[node] for node in outputs)

        given = [values[source] for source in inputs]
        with set_checkpoint_early_stop(False):
            found = checkpoint(again, *given, use_reentrant=False, preserve_rng_state=False)
        values.update(zip(outputs, found, strict=True))

    def _execute(self, nodes: list[fx.Node], values: dict[fx.Node, Any], among: Among | None) -> None:
        """In order; a value goes with the last of ``nodes`` that reads it unless it is read outside."""
        inside = set(nodes)
        last = {source: node for node in nodes for source in node.all_input_nodes}

        def value(node: fx.Node) -> Any:
            if node.op == "get_attr" and node not in values:
                return operator.attrgetter(str(node.target))(self.module)
            return values[node]

        for node in nodes:
            values[node] = self._function(node, among)(
                *fx.node.map_arg(node.args[:2] if node.target is leaves.OP else node.args, value),
                **fx.node.map_arg(node.kwargs, value),
            )
            for source in node.all_input_nodes:
                if source in inside and last[source] is node and not _read_outside(source, inside):
                    del values[source]

    def _function(self, node: fx.Node, among: Among | None) -> Callable[..., Any]:
        if node.target is leaves.OP:
            path = str(opaque_path(node))
            return functools.partial(self.calls[path].carry_out, self.opaque[path])
        if node.target in (leaves.convert_sharding, leaves.OBJECTIVE):
            if among is None:
                raise LabError("a worker of one device has nothing to convert or to share")
            return among.convert if node.target is leaves.convert_sharding else among.loss
        assert callable(node.target)
        return node.target


def _read_outside(node: fx.Node, inside: Collection[fx.Node]) -> bool:
    return any(user not in inside for user in node.users)


def opaque_path(node: fx.Node) -> str | None:
    """The path of the layer for which ``node`` stands, if it stands for one."""
    return str(node.args[2]) if node.target is leaves.OP else None


def trace_micro_batch(made: Built, plan: ParallelPlan, layers: tuple[str, ...]) -> MicroBatchGraph:
    """Trace one micro-batch and give each op the stage of its layer. Layers that the plan shards stay opaque.

    An op outside every layer (a residual sum, a loss) joins the latest stage among its inputs; no op is
    earlier than its inputs, so data flow forward only.
    """
    example = made.micro_batch(0, plan.micro_batch_samples)
    shardings = {layers[s.layer]: s for s in plan.shardings if s.compute > 1 or s.parameters > 1}
    opaque = {
        path: part
        for path, part in made.module.named_modules()
        if unwrapped(path) in shardings and any(True for _ in part.parameters())
    }
    module, calls = _trace(made.module, opaque, example, LOSS in shardings)
    along = lay_out(module.graph, {path: shardings[unwrapped(path)] for path in opaque})
    layer_of = _layers_of_nodes(module.graph, layers)
    stages = [number for number, stage in enumerate(plan.stages) for _ in range(stage.begin, stage.end)]
    stage_of = {node: stages[layer] for node, layer in layer_of.items()}
    (result,) = [node for node in module.graph.nodes if node.op == "output"]
    (loss,) = result.all_input_nodes
    if set(stages) != set(stage_of.values()):
        raise LabError(f"stages {sorted(set(stages) - set(stage_of.values()))} hold no op")
    runs = [run for number in range(len(plan.stages)) for run in recomputed_runs(plan, number)]
    run_of = {layer: number for number, run in enumerate(runs) for layer in run}
    again = {node: run_of[layer] for node, layer in layer_of.items() if layer in run_of}
    return MicroBatchGraph(module, opaque, calls, stage_of, again, _crossings(module, stage_of, along), loss)


def _trace(
    module: nn.Module, opaque: Mapping[str, nn.Module], example: tuple[Tensor, ...], one_op: bool
) -> tuple[fx.GraphModule, Mapping[str, leaves.LayerCall]]:
    """The graph, and how the layers are called that stay whole in it."""
    shapes = leaves.outputs_of(module, list(opaque), example)
    stack = contextlib.ExitStack()
    calls = stack.enter_context(leaves.stubs(module, shapes))
    if one_op and isinstance(module, Objective):
        stack.enter_context(leaves.stub_objective(module))
    with stack:
        traced = torch.export.export(module, example, strict=False).module(check_guards=False)
    assert isinstance(traced, fx.GraphModule)
    return traced, calls


def _layers_of_nodes(graph: fx.Graph, layers: tuple[str, ...]) -> dict[fx.Node, int]:
    """The layer of each op, ops in the order of their layers: none is in an earlier layer than its inputs."""
    number: dict[str, int] = {}
    for place, name in enumerate(layers):
        number.setdefault(name, place)
    found: dict[fx.Node, int] = {}
    for node in graph.nodes:
        if node.op == "call_function":
            inputs = [found.get(source, 0) for source in node.all_input_nodes]
            found[node] = max([_named_layer(node, number), *inputs])
    return dict(sorted(found.items(), key=lambda item: item[1]))


def _named_layer(node: fx.Node, number: Mapping[str, int]) -> int:
    """The innermost module around ``node`` that is a layer of the plan; the first outside every layer.

    Layers are named without the wrappers around a model; what the outermost module computes itself is
    ``loss``.
    """
    paths = [str(path) for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
    if paths and not any(paths):
        return number.get(LOSS, 0)
    for path in reversed(paths):
        parts = unwrapped(path).split(".")
        for length in range(len(parts), 0, -1):
            name = ".".join(parts[:length])
            if name in number:
                return number[name]
    return 0


def _crossings(
    module: fx.GraphModule, stage_of: dict[fx.Node, int], along: dict[fx.Node, int]
) -> tuple[Crossing, ...]:
    learned = _learned(module)
    found: list[Crossing] = []
    for node, source in stage_of.items():
        for target in sorted({stage_of[user] for user in node.users if user in stage_of} - {source}):
            value = node.meta["val"]
            if not isinstance(value, Tensor):
                raise LabError(f"{node.name} crosses from stage {source} to {target} and is no tensor")
            differentiable = value.is_floating_point() and node in learned
            found.append(Crossing(len(found), node, source, target, differentiable, along.get(node)))
    return tuple(found)


def _learned(module: fx.GraphModule) -> set[fx.Node]:
    """Values that follow from parameters; positions and masks do not, and have no gradients."""
    found: set[fx.Node] = set()
    for node in module.graph.nodes:
        own = node.target is leaves.OP
        if node.op == "get_attr":
            value = operator.attrgetter(str(node.target))(module)
            own = isinstance(value, nn.Parameter) and value.requires_grad
        if own or any(source in found for source in node.all_input_nodes):
            found.add(node)
    return found
