"""``rtasks``: a schedule of blocks carried out by lanes, threads on a processor and streams on a GPU.

The groups are run one after another, as kernels would be launched; inside a group every lane works off its
own list and waits only for what it reads. Ops are torch's own, on parts of their operands.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from experiments.compilation.interface import CONSTANT, Graph, Ref
from experiments.compilation.live.backends.base import Compiled, Task, clock_compilation
from experiments.compilation.live.lower import attribute
from experiments.compilation.live.rtasks.lanes import RanBlocks, lanes_on
from experiments.compilation.live.rtasks.program import Group, PartialOperators, Values, read_groups


def build(task: Task, options: Mapping[str, Any]) -> Compiled:
    """Return the model as lists of blocks for ``options["lanes"]`` lanes: groups of operators and lanes."""
    with clock_compilation() as clock:
        groups = read_groups(options["groups"], task.graph)
        program = BlockProgram(task, groups, options["lanes"])
        module = _module(task, program)
    with torch.no_grad():
        module(*task.inputs)
        program.ran = []
        module(*task.inputs)
    ran, program.ran = program.ran, None
    report = {
        "timeline": {"lanes": timeline(ran)},
        "lanes": options["lanes"],
        "group_sizes": list(map(len, groups)),
    }
    metrics = {"kernels": float(len(groups))}
    return Compiled(module, clock.wall, clock.cpu, metrics, report)


class BlockProgram(nn.Module):
    """Inputs to the graph's results, by the groups of a schedule.

    ``ran`` takes who ran what when, where somebody asks for it.
    """

    def __init__(self, task: Task, groups: Sequence[Group], lanes: int) -> None:
        super().__init__()
        self.ran: list[RanBlocks] | None = None
        self._graph, self._groups = task.graph, groups
        self._parts = PartialOperators(task.graph, groups, task.device)
        self._lanes = lanes_on(task.device, lanes)
        self._held = {
            Ref(node.name): attribute(task.origin, node.target)
            for node in task.graph.nodes
            if node.kind == CONSTANT
        }

    def forward(self, *inputs: Tensor) -> tuple[Any, ...]:
        values: Values = dict(self._held)
        values |= {Ref(node.name): value for node, value in zip(self._graph.inputs, inputs, strict=True)}
        for group in self._groups:
            for entry in group:
                self._parts.prepare(entry, values)
            self._lanes.run(group, lambda of, block: self._parts.compute(of, block, values), self.ran)
        return tuple(self._parts.value(ref, values) for ref in list_results(self._graph))


def list_results(graph: Graph) -> list[Ref]:
    """Return the results that the graph gives, each once."""
    return list(dict.fromkeys(graph.output.refs))


def _module(task: Task, program: BlockProgram) -> fx.GraphModule:
    """Return the program behind the calling convention of the model."""
    graph = fx.Graph()
    inputs = tuple(graph.placeholder(node.target) for node in task.graph.inputs)
    made = graph.call_module("program", inputs)
    results = {
        ref: graph.call_function(operator.getitem, (made, number))
        for number, ref in enumerate(list_results(task.graph))
    }

    def handed(value: Any) -> Any:
        if isinstance(value, tuple):
            return [handed(entry) for entry in value]
        return results[value] if isinstance(value, Ref) else value

    graph.output(handed(task.graph.output.arguments[0]))
    graph.set_codegen(task.origin.graph._codegen)
    return fx.GraphModule(nn.ModuleDict({"program": program}), graph)


def timeline(ran: Sequence[RanBlocks]) -> list[dict[str, Any]]:
    """Return who ran what when in one call, lane by lane, in seconds from its beginning."""
    begin = min((one.start for one in ran), default=0.0)
    events: dict[int, list[list[Any]]] = {}
    for lane, start, finish, name in sorted(ran):
        events.setdefault(lane, []).append([start - begin, finish - begin, name])
    return [{"devices": [lane], "events": row} for lane, row in events.items()]
