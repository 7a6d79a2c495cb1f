"""What an ONNX file must be before anything is made of it: small enough, self-contained, well-formed, of
known shapes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from experiments.core.errors import BadInput
from experiments.workloads.operators import ONNX_OPERATORS

MOST_NODES = 50_000
MOST_TENSORS = 100_000
MOST_DIMENSIONS = 8
MOST_ELEMENTS = 1 << 40
OLDEST_OPERATORS = 7
#: Initializers up to this many bytes keep their values in the checked copy: shapes are computed from them.
SMALL_TENSOR = 4096
DOMAINS = ("", "ai.onnx")


def refuse_large(model: Any, name: str) -> None:
    """Check counts and sizes, before any library walks the graph.

    ``BadInput`` names what is too large or outside.
    """
    if not model.HasField("graph") or not model.graph.node:
        raise BadInput("holds no graph", name, "an ONNX model with nodes")
    nodes = _count_expanded(model, name)
    if nodes > MOST_NODES:
        raise BadInput(f"{nodes} nodes", name, f"at most {MOST_NODES}")
    tensors = list(_tensors(model))
    if len(tensors) > MOST_TENSORS:
        raise BadInput(f"{len(tensors)} stored tensors", name, f"at most {MOST_TENSORS}")
    for tensor in tensors:
        _check_tensor(tensor, name)
    if model.graph.sparse_initializer:
        raise BadInput("holds sparse initializers", name, "dense tensors")


def _count_expanded(model: Any, name: str) -> int:
    """Nodes once every call of a function of the file is replaced; a function that calls itself
    is refused.
    """
    bodies = {(item.domain, item.name): item for item in model.functions}
    known: dict[tuple[str, str], int] = {}

    def count(nodes: Any, inside: tuple[tuple[str, str], ...]) -> int:
        return sum(one(node, inside) for node in nodes)

    def one(node: Any, inside: tuple[tuple[str, str], ...]) -> int:
        key = (node.domain, node.op_type)
        if key not in bodies:
            return 1
        if key in inside or len(inside) > 32:
            raise BadInput(f"function {node.op_type!r:.80} calls itself", name, "functions that end")
        if key not in known:
            known[key] = count(bodies[key].node, (*inside, key))
        return known[key]

    return count(model.graph.node, ())


def _tensors(model: Any) -> Iterator[Any]:
    yield from model.graph.initializer
    for nodes in (model.graph.node, *(item.node for item in model.functions)):
        for node in nodes:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors


def _check_tensor(tensor: Any, name: str) -> None:
    where = f"{name}, tensor {tensor.name!r:.80}"
    if tensor.data_location or tensor.external_data:
        raise BadInput("keeps its values in another file", where, "a model saved without external data")
    _check_sizes(tensor.dims, where)


def _check_sizes(sizes: Any, where: str) -> None:
    if len(sizes) > MOST_DIMENSIONS:
        raise BadInput(f"{len(sizes)} dimensions", where, f"at most {MOST_DIMENSIONS}")
    if any(size < 0 for size in sizes) or math.prod(sizes) > MOST_ELEMENTS:
        raise BadInput(
            f"shape {list(sizes)!s:.120}", where, f"sizes from 0, at most {MOST_ELEMENTS} elements"
        )


def check(model: Any, name: str) -> None:
    """The library's own checker over the graph without its large weights, then our operators."""
    from onnx import checker, defs

    versions = {entry.domain: entry.version for entry in model.opset_import}
    version = versions.get("", versions.get("ai.onnx", 0))
    newest = defs.onnx_opset_version()
    if not OLDEST_OPERATORS <= version <= newest:
        raise BadInput(f"operator set {version}", name, f"one from {OLDEST_OPERATORS} to {newest}")
    for index, node in enumerate(model.graph.node):
        if node.domain not in DOMAINS or node.op_type not in ONNX_OPERATORS:
            shown = f"{node.domain + '.' if node.domain else ''}{node.op_type}"[:80]
            what = f"operator {shown!r} is not known"
            raise BadInput(what, f"{name}, node {index} ({node.name!r:.80})", "operators that can be built")
    try:
        checker.check_model(_skeleton(model))
    except checker.ValidationError as error:
        raise BadInput(f"not valid ONNX: {_line(error)}", name, "a model that onnx.checker accepts") from None


def check_inferred_shapes(model: Any, shapes: Mapping[str, tuple[int, ...]], name: str) -> None:
    """Check every value's shape with inputs of ``shapes``, by the library's inference.

    None may be absurdly large.
    """
    from onnx import shape_inference

    skeleton = _skeleton(model, shapes)
    try:
        found = shape_inference.infer_shapes(skeleton, check_type=True, strict_mode=True, data_prop=True)
    except shape_inference.InferenceError as error:
        raise BadInput(f"shapes that do not fit: {_line(error)}", name, "a graph of fitting shapes") from None
    for value in (*found.graph.value_info, *found.graph.output):
        sizes = [size.dim_value for size in value.type.tensor_type.shape.dim]
        _check_sizes(sizes, f"{name}, value {value.name!r:.80}")


def _line(error: Exception) -> str:
    text = "".join(c if c.isprintable() else " " for c in str(error))
    return " ".join(text.encode("utf-8", "replace").decode().split())[:300]


def _skeleton(model: Any, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Any:
    """The graph with large initializers declared as inputs instead, so that no pass copies the weights."""
    import onnx

    graph = onnx.GraphProto(name=model.graph.name or "graph")
    graph.node.extend(model.graph.node)
    given = {item.name for item in model.graph.initializer}
    graph.input.extend(item for item in model.graph.input if item.name not in given)
    for item in graph.input:
        if shapes is not None and item.name in shapes:
            _set_shape(item, shapes[item.name])
    for tensor in model.graph.initializer:
        if tensor.ByteSize() <= SMALL_TENSOR:
            graph.initializer.append(tensor)
        else:
            sizes = list(tensor.dims)
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, sizes))
    graph.output.extend(model.graph.output)
    for item in graph.output if shapes is not None else ():
        item.type.tensor_type.ClearField("shape")  # may be of another batch
    version = max(model.ir_version, 4)  # before 4 each initializer had to be an input too
    return onnx.ModelProto(ir_version=version, opset_import=model.opset_import, graph=graph)


def _set_shape(item: Any, sizes: tuple[int, ...]) -> None:
    item.type.tensor_type.ClearField("shape")
    for size in sizes:
        item.type.tensor_type.shape.dim.add().dim_value = size
