"""A module as a functional ATen graph, and that graph as the records that policies see (``live.lower`` turns
back).
"""

from __future__ import annotations

import contextlib
import io
import operator
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn
from torch._dynamo.exc import UserError
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from experiments.compilation.interface import (
    CONSTANT,
    INPUT,
    OP,
    OUTPUT,
    Argument,
    Graph,
    GraphNode,
    Ref,
    Symbol,
)
from experiments.compilation.live.module_hooks import report_modules
from experiments.compilation.live.types import behavior, gives_several, qualified_name, types_of
from experiments.core.errors import BadInput
from experiments.core.progress import Progress, silent

#: Puts a new value into a buffer or an input; its result is that tensor, whose type the exporter does not
#: note.
WRITE_BACK = torch.ops.aten.copy_.default
KINDS = {"placeholder": INPUT, "get_attr": CONSTANT, "call_function": OP, "output": OUTPUT}
SYMBOLS = {
    torch.dtype: "dtype",
    torch.device: "device",
    torch.layout: "layout",
    torch.memory_format: "memory_format",
}


#: What torch's exporter raises where data decide the control flow.
DATA_DECIDE = (GuardOnDataDependentSymNode, UserError)


class NoOneGraph(BadInput):
    """The module's data decide what it does, so there is no one graph of it."""

    def __init__(self, error: Exception) -> None:
        line = " ".join(str(error).split())
        super().__init__(
            f"has control flow that its data decide: {line:.160}", "model", "one graph for all data"
        )


def export(
    module: nn.Module,
    inputs: tuple[torch.Tensor, ...],
    open_axes: Mapping[int, Sequence[int]] | None = None,
    progress: Progress = silent,
) -> fx.GraphModule:
    """Return ``module`` exported in the mode it is in and functionalized.

    Parameters are attributes, and the only ops that write to what they read are the last ones, which keep the
    buffers (running statistics) up to date. ``open_axes``: by number of the input the dimensions whose sizes
    stay open. ``NoOneGraph`` where control flow depends on data. ``progress`` gets a sign of life at each
    module and between the calls of torch's exporter, which report nothing themselves.
    """
    shapes: Any = torch.export.ShapesCollection()  # type: ignore[no-untyped-call]
    for place, dimensions in (open_axes or {}).items():
        shapes[inputs[place]] = dict.fromkeys(dimensions, torch.export.Dim.AUTO)
    # Where data decide, the exporter prints the whole graph besides raising.
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore", FutureWarning)
        try:
            with report_modules(progress):
                program = torch.export.export(
                    module, inputs, dynamic_shapes=shapes if open_axes else None, strict=False
                )
            progress(0.0, "")
            program = program.run_decompositions({})
        except DATA_DECIDE as error:
            raise NoOneGraph(error) from error
        progress(0.0, "")
        graph_module = program.module()
    for node in list(graph_module.graph.nodes):
        if node.op == "call_module" and not node.users:  # export's own check of the input sizes
            graph_module.graph.erase_node(node)
    graph_module.recompile()
    assert isinstance(graph_module, fx.GraphModule)
    return graph_module


def records(graph_module: fx.GraphModule) -> Graph:
    """Return the graph as plain records, in execution order, without constants that nothing reads.

    Raises ``BadInput`` on what records cannot say.
    """
    refs: dict[fx.Node, Ref] = {}
    nodes = []
    for node in graph_module.graph.nodes:
        if node.op == "get_attr" and not node.users:
            continue
        if node.target is operator.getitem:
            refs[node] = _selected_result(node, refs)
        else:
            nodes.append(_record(node, graph_module, refs))
            refs[node] = Ref(node.name)
    return Graph(tuple(nodes))


def _selected_result(node: fx.Node, refs: dict[fx.Node, Ref]) -> Ref:
    source, index = node.args
    if not isinstance(source, fx.Node) or not isinstance(index, int) or not _several(source):
        raise BadInput(f"selects {node.args}", node.name, "one of an op's results by its number")
    return Ref(refs[source].node, index)


def _several(node: fx.Node) -> bool:
    return node.op == "call_function" and node.target is not operator.getitem and gives_several(node.target)


def _record(node: fx.Node, owner: fx.GraphModule, refs: dict[fx.Node, Ref]) -> GraphNode:
    if node.op not in KINDS:
        raise BadInput(f"is a {node.op}", node.name, "a functional graph of ATen ops")
    value = node.meta.get("val")
    if node.op == "get_attr":
        value = fx.graph_module._get_attr(owner, str(node.target))
    elif node.target is WRITE_BACK:
        value = _destination(node, owner)
    known = behavior(node.target) if node.op == "call_function" else {}
    keywords = sorted(node.kwargs.items())
    return GraphNode(
        name=node.name,
        kind=KINDS[node.op],
        target=qualified_name(node.target) if node.op == "call_function" else str(node.target),
        arguments=tuple(_plain(value, refs, node) for value in node.args),
        keywords=tuple((name, _plain(value, refs, node)) for name, value in keywords),
        outputs=types_of(value),
        **known,
    )


def _destination(node: fx.Node, owner: fx.GraphModule) -> Any:
    written = node.args[0]
    assert isinstance(written, fx.Node)
    if written.op == "get_attr":
        return fx.graph_module._get_attr(owner, str(written.target))
    return written.meta.get("val")


def _plain(value: Any, refs: dict[fx.Node, Ref], node: fx.Node) -> Argument:
    if isinstance(value, fx.Node):
        if _several(value):
            raise BadInput(f"reads all results of {value.name} at once", node.name, "one result at a time")
        return refs[value]
    if isinstance(value, list | tuple):
        return tuple(_plain(entry, refs, node) for entry in value)
    if value is None or isinstance(value, bool | int | float | complex | str):
        return value
    for kind, name in SYMBOLS.items():
        if isinstance(value, kind):
            return Symbol(name, str(value).removeprefix("torch."))
    raise BadInput(f"has an argument of type {type(value).__name__}", node.name, "tensors and plain values")
