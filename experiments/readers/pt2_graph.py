"""From the JSON of an exported program to a GraphProgram. Field names are those of torch's ``schema.py``,
version 8.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments.core.errors import BadInput
from experiments.readers.pt2_arguments import LARGEST, argument_of, integer, read_name
from experiments.readers.pt2_fields import list_at, name_of, object_at, only_entry, text_at
from experiments.readers.pt2_weights import MOST_DIMENSIONS, dtype_of
from experiments.workloads.operators import ASSERTIONS, ATEN_OPERATORS, SIZE_ARITHMETIC, UPDATE
from experiments.workloads.program import (
    FLOATS,
    GraphProgram,
    Input,
    Node,
    Stored,
    Value,
    Weight,
)

MAJOR = 8
MOST_NODES = 50_000
KEYWORD = 2
#: Operators behind which an index is still that index.
PASSING = (
    "to",
    "view",
    "reshape",
    "_to_copy",
    "clone",
    "contiguous",
    "unsqueeze",
    "expand",
    "slice",
    "detach",
)


#: ``Symbol('s77', positive=True, integer=True)`` or ``s77``: matched, never evaluated.
_SYMBOL = re.compile(r"Symbol\('(\w{1,40})'(?:, \w{1,20}=(?:True|False))*\)|(\w{1,40})")


@dataclass
class _Graph:
    """The graph's JSON with what its names stand for."""

    graph: Mapping[str, Any]
    weights: Mapping[str, Weight]
    where: str
    names: dict[str, Value | Stored] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)


def program_of(
    content: Any, weights: Mapping[str, Weight], sha256: str, where: str
) -> tuple[GraphProgram, tuple[str, ...]]:
    """The program and what was assumed; ``BadInput`` names the node that is not computation on tensors."""
    _check_version(content, where)
    module = object_at(content, "graph_module", where)
    graph = _Graph(object_at(module, "graph", where), weights, where)
    signature = object_at(module, "signature", where)
    for spec in list_at(signature, "input_specs", where):
        _bind(graph, spec)
    nodes = [*_nodes(graph), *_updates(graph, signature)]
    metas = object_at(graph.graph, "tensor_values", where)
    usual: dict[str, int] = {}
    inputs = tuple(_input(graph, name, metas, nodes, usual) for name in graph.inputs)
    if not inputs:
        raise BadInput("has no inputs", where, "a model of some input")

    def of(kind: str) -> dict[str, Weight]:
        return {name: weights[name] for name, found in graph.kinds.items() if found == kind}

    program = GraphProgram(
        format="pt2",
        sha256=sha256,
        nodes=tuple(nodes),
        inputs=inputs,
        output=_output(graph, signature, metas),
        outputs=tuple(_outputs(graph, signature)),
        parameters=of("parameter"),
        buffers=of("buffer"),
        constants=of("constant"),
        usual=usual,
    )
    return program, tuple(_assumptions(program, str(content.get("torch_version"))[:40]))


def _assumptions(program: GraphProgram, version: str) -> Iterator[str]:
    yield (
        f"exported by torch {version}; a batch is made from the shapes of the inputs, sample inputs stay "
        "unopened"
    )
    yield (
        f"the loss is the mean cross entropy over the classes of output {program.output!r:.60}, or the mean "
        "square "
        "where it has no classes; an output that is one number is the loss"
    )
    operators = {node.op for node in program.nodes}
    if any("batch_norm" in operator for operator in operators):
        yield "batch normalizations use the batch's own statistics in training, whatever mode was exported"
    if any("dropout" in operator for operator in operators):
        yield "dropout built as 0, so that a step is repeatable"


def _check_version(content: Any, where: str) -> None:
    version = object_at(content, "schema_version", where)
    if version.get("major") != MAJOR:
        raise BadInput(
            f"schema version {version!r:.80}", where, f"major version {MAJOR}: torch 2.7 and newer"
        )


def _bind(graph: _Graph, spec: Any) -> None:
    """One argument of the graph: what the file stores under its name, or an input of the user's."""
    kind, body = only_entry(spec, graph.where)
    stored = {
        "parameter": ("parameter_name", "parameter"),
        "buffer": ("buffer_name", "buffer"),
        "tensor_constant": ("tensor_constant_name", "constant"),
    }
    if kind in stored:
        field_name, shown = stored[kind]
        argument, name = name_of(body.get("arg"), graph.where), text_at(body, field_name, graph.where)
        if name not in graph.weights:
            raise BadInput(f"{shown} {name!r:.80} has no values", graph.where, "one in the archive")
        graph.names[argument] = Stored(_first_name(graph, name, shown))
    elif kind == "user_input":
        what, inner = only_entry(body.get("arg"), graph.where)
        if what == "as_tensor":
            name = name_of(inner, graph.where)
            graph.names[name] = Value(name)
            graph.inputs.append(name)
        elif what not in ("as_none", "as_int", "as_float", "as_bool", "as_string"):
            raise BadInput(f"an input of kind {what!r:.40}", graph.where, "tensors")
    elif kind != "constant_input":
        raise BadInput(f"an input of kind {kind!r:.40}", graph.where, "tensors: no objects, no tokens")


def _first_name(graph: _Graph, name: str, kind: str) -> str:
    """Tied tensors are one, under the name that comes first."""
    twin = next((other for other in graph.kinds if graph.weights[other] is graph.weights[name]), name)
    graph.kinds.setdefault(twin, kind)
    return twin


def _nodes(graph: _Graph) -> Iterator[Node]:
    entries = list_at(graph.graph, "nodes", graph.where)
    if len(entries) > MOST_NODES:
        raise BadInput(f"{len(entries)} nodes", graph.where, f"at most {MOST_NODES}")
    for index, entry in enumerate(entries):
        target = text_at(entry, "target", graph.where)
        where = f"{graph.where}, node {index} ({target!r:.80})"
        if target in ASSERTIONS:
            continue
        yield _node(graph, entry, _operator(target, where), where)


def _operator(target: str, where: str) -> str:
    """``aten.NAME.OVERLOAD`` or arithmetic on sizes, from the lists of what may be called; anything else is
    refused.
    """
    found = re.fullmatch(r"torch\.ops\.(aten\.(\w+)\.\w+)", target)
    if found and found[2] in ATEN_OPERATORS:
        return found[1]
    if target in SIZE_ARITHMETIC:
        return target
    raise BadInput(
        "is not on the list of what may be called", where, "computation on tensors (torch.ops.aten)"
    )


def _node(graph: _Graph, entry: Mapping[str, Any], operator: str, where: str) -> Node:
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for item in list_at(entry, "inputs", where):
        name, value = (
            text_at(item, "name", where),
            argument_of(graph.names, item.get("arg"), f"{where}, {item.get('name')!r:.40}"),
        )
        if item.get("kind") == KEYWORD:
            keywords[name] = value
        else:
            positional.append(value)
    outputs = tuple(name for output in list_at(entry, "outputs", where) for name in _results(output, where))
    for name in outputs:
        if name in graph.names:
            raise BadInput(f"{name!r:.80} is made twice", where, "each value once")
        if name:
            graph.names[name] = Value(name)
    shown = entry.get("name") or (outputs[0] if outputs else operator)
    return Node(operator, str(shown)[:80], _scope(entry), tuple(positional), keywords, outputs)


def _results(output: Any, where: str) -> list[str]:
    """Names of what a node gives; an empty one for nothing."""
    kind, body = only_entry(output, where)
    if kind in ("as_tensor", "as_sym_int", "as_sym_bool", "as_sym_float"):
        return [text_at(body, "name" if kind == "as_tensor" else "as_name", where)]
    if kind == "as_tensors":
        return [name_of(item, where) for item in body]
    if kind == "as_none":
        return [""]
    raise BadInput(f"a result of kind {kind!r:.40}", where, "tensors and sizes")


def _scope(entry: Mapping[str, Any]) -> str:
    """The innermost module of ``key,path,type;key,path,type;...``; ``path@1`` is a second call."""
    stack = (
        entry.get("metadata", {}).get("nn_module_stack") if isinstance(entry.get("metadata"), dict) else None
    )
    parts = str(stack or "")[:16_000].rpartition(";")[2].split(",")
    path = parts[1] if len(parts) > 2 else ""
    return re.sub(r"@\d+", "", path) if re.fullmatch(r"[\w.@]*", path) and "_empty_nn" not in path else ""


def _updates(graph: _Graph, signature: Mapping[str, Any]) -> Iterator[Node]:
    """Buffers that a program without in-place operations gives back as results: written where
    they came from.
    """
    for spec in list_at(signature, "output_specs", graph.where):
        kind, body = only_entry(spec, graph.where)
        if kind == "buffer_mutation":
            name, value = (
                text_at(body, "buffer_name", graph.where),
                read_name(graph.names, body.get("arg"), graph.where),
            )
            if graph.kinds.get(name) != "buffer":
                raise BadInput(f"{name!r:.80} is no buffer", graph.where, "one of the program's buffers")
            yield Node(UPDATE, f"update of {name}"[:80], "", (Stored(name), value), {}, ())
        elif kind != "user_output":
            raise BadInput(f"a result of kind {kind!r:.40}", graph.where, "outputs and updated buffers")


def _outputs(graph: _Graph, signature: Mapping[str, Any]) -> Iterator[str]:
    """The tensors that the program gives its caller, by name."""
    for spec in list_at(signature, "output_specs", graph.where):
        what, body = only_entry(spec, graph.where)
        kind, inner = only_entry(body.get("arg"), graph.where)
        if what == "user_output" and kind == "as_tensor":
            known = graph.names.get(name_of(inner, graph.where))
            if known is not None:
                yield known.name


def _output(graph: _Graph, signature: Mapping[str, Any], metas: Mapping[str, Any]) -> str:
    """The first output of real numbers that a node makes."""
    for spec in list_at(signature, "output_specs", graph.where):
        _, body = only_entry(spec, graph.where)
        kind, inner = only_entry(body.get("arg"), graph.where)
        name = name_of(inner, graph.where) if kind == "as_tensor" else ""
        made = isinstance(graph.names.get(name), Value) and name in metas
        if made and dtype_of(metas[name], graph.where) in FLOATS:
            return name
    raise BadInput("has no output of real numbers", graph.where, "an output that a loss can be made of")


def _input(
    graph: _Graph, name: str, metas: Mapping[str, Any], nodes: list[Node], usual: dict[str, int]
) -> Input:
    where = f"{graph.where}, input {name!r:.80}"
    meta = metas.get(name)
    dtype = dtype_of(meta, where)
    sizes = meta.get("sizes") if isinstance(meta, dict) else None
    if not isinstance(sizes, list) or len(sizes) > MOST_DIMENSIONS:
        raise BadInput("has no shape", where, f"a list of at most {MOST_DIMENSIONS} sizes")
    shape = tuple(_size(size, usual, where) for size in sizes)
    high = 0 if dtype in FLOATS else _bound(graph, name, nodes)
    looks_up = high > 0
    return Input(
        name, dtype, shape, high or (0 if dtype in FLOATS else 2), not looks_up and "mask" in name.lower()
    )


def _size(size: Any, usual: dict[str, int], where: str) -> int | str:
    """A fixed size, or the symbol of an open one, whose value at export is remembered."""
    kind, body = only_entry(size, where)
    if kind == "as_int":
        value = integer({}, body, where)
        if value < 1:
            raise BadInput(f"size {value}", where, "sizes from 1")
        return value
    text = body.get("expr_str") if isinstance(body, dict) else None
    found = _SYMBOL.fullmatch(str(text)[:200])
    if kind != "as_expr" or not found:
        raise BadInput(f"size {text!r:.80} is an expression", where, "a number or a symbol")
    symbol = found[1] or found[2]
    hint = body.get("hint")
    seen = hint.get("as_int") if isinstance(hint, dict) else None
    if isinstance(seen, int) and 0 < seen < LARGEST:
        usual[symbol] = seen
    return symbol


def _bound(graph: _Graph, name: str, nodes: list[Node]) -> int:
    """Rows of the smallest table that the input looks up; 0 where it looks up none."""
    same, rows = {name}, []
    for node in nodes:
        first = node.arguments[0] if node.arguments else None
        operator = node.op.split(".")[1] if node.op.startswith("aten.") else ""
        if operator in PASSING and isinstance(first, Value) and first.name in same:
            same.update(node.outputs)
        if operator == "embedding" and isinstance(first, Stored) and len(node.arguments) > 1:
            index = node.arguments[1]
            if isinstance(index, Value) and index.name in same:
                rows.append(graph.weights[first.name].shape[0])
    return min(rows, default=0)
