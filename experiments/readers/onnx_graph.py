"""From a checked ONNX graph to a GraphProgram: which stored tensors are trained, what each input is, whose
node it is.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from experiments.core.errors import BadInput
from experiments.workloads.operators import ATEN_OPERATORS
from experiments.workloads.program import (
    ELEMENT_BYTES,
    FLOATS,
    DType,
    GraphProgram,
    Input,
    Node,
    Stored,
    Value,
    Weight,
)

#: TensorProto.DataType by number, in torch's names.
DTYPES = {
    **{1: "float32", 10: "float16", 11: "float64", 16: "bfloat16", 9: "bool"},
    **{2: "uint8", 3: "int8", 5: "int16", 6: "int32", 7: "int64"},
}

#: Attributes that name an element type.
TYPES = (("Cast", "to"),)
#: The arguments of each operator that hold what training changes, and running statistics.
WEIGHTS: Mapping[str, tuple[int, ...]] = {
    **{"Conv": (1, 2), "ConvTranspose": (1, 2), "Gemm": (0, 1, 2), "MatMul": (0, 1), "Einsum": (0, 1, 2)},
    **{"BatchNormalization": (1, 2), "InstanceNormalization": (1, 2), "GroupNormalization": (1, 2)},
    **{"LayerNormalization": (1, 2), "RMSNormalization": (1,), "PRelu": (1,), "Gather": (0,)},
}
STATISTICS: Mapping[str, tuple[int, ...]] = {"BatchNormalization": (3, 4)}
#: Elementwise operators whose stored tensor is a bias or a scale, if it can be one (see ``_may_train``).
ELEMENTWISE = ("Add", "Sub", "Mul", "Div")
#: Operators that hand a stored tensor on, so that what becomes of the result decides.
PASSING = (
    *(
        "Transpose",
        "Identity",
        "Reshape",
        "Cast",
        "Squeeze",
        "Unsqueeze",
        "Expand",
        "Slice",
        "Split",
        "Concat",
    ),
    "Flatten",
)
FARTHEST = 8
#: No weight is as large as what masks put in place of minus infinity.
LARGEST_WEIGHT = 1e4


@dataclass
class _Graph:
    """The ONNX graph with who reads what: ``uses[name]`` lists (node, position)."""

    model: Any
    name: str
    uses: dict[str, list[tuple[Any, int]]] = field(default_factory=dict)
    stored: dict[str, Weight] = field(default_factory=dict)

    @functools.cached_property
    def named_tensors(self) -> frozenset[str]:
        """Stored tensors that an exporter did not work out itself, as it does a table of sines.

        torch calls those after the operation (``mul_3``, ``val_7``). Rows that it looked up in a table of
        positions are weights all the same.
        """
        own = ATEN_OPERATORS - {"embedding"} | {"val"}
        names = (tensor.name for tensor in self.model.graph.initializer)
        return frozenset(name for name in names if re.sub(r"_\d+$", "", name) not in own)


def program_of(model: Any, sha256: str, name: str) -> tuple[GraphProgram, tuple[str, ...]]:
    """The program, and what was assumed about it."""
    graph = _Graph(model, name)
    for node in model.graph.node:
        for position, read in enumerate(node.input):
            graph.uses.setdefault(read, []).append((node, position))
    graph.stored = dict(_stored_weights(model, name))
    inputs = _inputs(graph)
    kinds = {key: _kind(graph, key, weight) for key, weight in graph.stored.items() if key in graph.uses}
    same = _twins({key: graph.stored[key] for key, kind in kinds.items() if kind == "parameter"})
    output = _output(graph)

    def of(kind: str) -> dict[str, Weight]:
        return {key: graph.stored[key] for key, found in kinds.items() if found == kind and key not in same}

    program = GraphProgram(
        format="onnx",
        sha256=sha256,
        nodes=tuple(_nodes(graph, same)),
        inputs=inputs,
        output=output,
        outputs=tuple(str(item.name) for item in model.graph.output),
        parameters=of("parameter"),
        buffers=of("buffer"),
        constants=of("constant"),
        operators={entry.domain: entry.version for entry in model.opset_import},
    )
    return program, tuple(_assumptions(graph, program))


def _assumptions(graph: _Graph, program: GraphProgram) -> Iterator[str]:
    yield (
        f"the loss is the mean cross entropy over the classes of output {program.output!r:.60}, or the mean "
        "square "
        "where it has no classes; an output that is one number is the loss"
    )
    yield (
        f"{len(program.parameters)} stored tensors are trained: those that products, normalizations and sums "
        "read"
    )
    operators = {node.op for node in program.nodes}
    if "BatchNormalization" in operators:
        yield "batch normalizations use the batch's own statistics in training, whatever mode was exported"
    if "Dropout" in operators:
        yield "dropout built as 0, so that a step is repeatable"
    if len(program.outputs) > 1:
        yield f"{len(program.outputs) - 1} other outputs have no part in the loss; inference gives all"


def _stored_weights(model: Any, name: str) -> Iterator[tuple[str, Weight]]:
    """Initializers and the values of Constant nodes, by name."""
    for tensor in model.graph.initializer:
        yield tensor.name, weight_of(tensor, name)
    for node in model.graph.node:
        if node.op_type == "Constant":
            yield node.output[0], _constant(node, name)


def weight_of(tensor: Any, name: str) -> Weight:
    from onnx import numpy_helper

    where = f"{name}, tensor {tensor.name!r:.80}"
    dtype, shape = _dtype(tensor.data_type, where), tuple(tensor.dims)
    try:
        data = (
            bytes(tensor.raw_data) if tensor.HasField("raw_data") else numpy_helper.to_array(tensor).tobytes()
        )
    except ValueError as error:
        raise BadInput(
            f"values that do not fit its shape: {error}"[:200], where, "as many as the shape says"
        ) from None
    wanted = int(np.prod(shape, dtype=np.int64)) * ELEMENT_BYTES[dtype]
    if len(data) != wanted:
        raise BadInput(f"{len(data)} bytes for shape {list(shape)}", where, f"{wanted} bytes of {dtype}")
    return Weight(dtype, shape, data)


def _dtype(number: int, where: str) -> str:
    if number not in DTYPES:
        raise BadInput(f"element type {number}", where, "one of " + ", ".join(DTYPES.values()))
    return DTYPES[number]


def _constant(node: Any, name: str) -> Weight:
    """A Constant node's value, in whichever of its attributes it stands."""
    for attribute in node.attribute:
        if attribute.name == "value":
            return weight_of(attribute.t, name)
        for field_name, dtype in (("float", np.float32), ("int", np.int64)):
            if attribute.name == f"value_{field_name}":
                return _pack(np.array(getattr(attribute, field_name[0]), dtype))
            if attribute.name == f"value_{field_name}s":
                return _pack(np.array(getattr(attribute, f"{field_name}s"), dtype))
    raise BadInput("a constant of no known kind", f"{name}, node {node.name!r:.80}", "numbers")


def _pack(array: np.typing.NDArray[Any]) -> Weight:
    return Weight(str(array.dtype), array.shape, array.tobytes())


def _kind(graph: _Graph, key: str, weight: Weight) -> str:
    """``parameter`` (training changes it), ``buffer`` (running statistics) or ``constant``."""
    if weight.dtype not in FLOATS:
        return "constant"
    if any(position in STATISTICS.get(node.op_type, ()) for node, position in graph.uses[key]):
        return "buffer"
    named = graph.named_tensors
    for node, position in _readers(graph, key):
        if position in WEIGHTS.get(node.op_type, ()):
            return "parameter"
        if node.op_type in ELEMENTWISE and key in named and _may_train(weight):
            return "parameter"
    return "constant"


def _readers(graph: _Graph, key: str, depth: int = 0) -> Iterator[tuple[Any, int]]:
    """Who reads the value, through operators that only hand it on."""
    for node, position in graph.uses.get(key, ()):
        if node.op_type in PASSING and (position == 0 or node.op_type == "Concat"):
            if depth < FARTHEST:
                for output in node.output:
                    yield from _readers(graph, output, depth + 1)
        else:
            yield node, position


def _may_train(weight: Weight) -> bool:
    """More than one number, none of them infinite or as large as a mask's."""
    if len(weight.data) <= ELEMENT_BYTES[weight.dtype] or weight.dtype == "bfloat16":
        return len(weight.data) > ELEMENT_BYTES[weight.dtype]
    values = np.frombuffer(weight.data, weight.dtype)
    return bool(np.isfinite(values).all() and np.abs(values).max() < LARGEST_WEIGHT)


def _twins(parameters: Mapping[str, Weight]) -> dict[str, tuple[str, bool]]:
    """Matrices equal to an earlier one, as they are or transposed (``True``): tied weights that export
    copied.
    """
    seen: dict[tuple[str, tuple[int, ...], int], str] = {}
    found: dict[str, tuple[str, bool]] = {}
    for key, weight in parameters.items():
        if len(weight.shape) != 2 or len(set(weight.data[:64])) < 2:
            continue
        for turned in (False, True):
            data, shape = (_turned(weight), weight.shape[::-1]) if turned else (weight.data, weight.shape)
            twin = seen.get((weight.dtype, shape, hash(data)))
            if twin is not None and parameters[twin].data == data:
                found[key] = (twin, turned)
                break
        else:
            seen[weight.dtype, weight.shape, hash(weight.data)] = key
    return found


def _turned(weight: Weight) -> bytes:
    element = f"V{ELEMENT_BYTES[weight.dtype]}"
    return np.ascontiguousarray(np.frombuffer(weight.data, element).reshape(weight.shape).T).tobytes()


def _inputs(graph: _Graph) -> tuple[Input, ...]:
    found = []
    for item in graph.model.graph.input:
        if item.name in graph.stored:
            continue
        where = f"{graph.name}, input {item.name!r:.80}"
        tensor = item.type.tensor_type
        dtype = DTYPES.get(tensor.elem_type)
        if dtype is None or not tensor.HasField("shape"):
            raise BadInput("is no tensor of known type and rank", where, "tensors with a shape")
        shape = tuple(_size(size, item.name, place) for place, size in enumerate(tensor.shape.dim))
        if any(isinstance(size, int) and size < 1 for size in shape):
            raise BadInput(f"shape {shape}", where, "sizes from 1")
        high, ones = (0, False) if dtype in FLOATS else _bound(graph, item.name)
        found.append(Input(item.name, dtype, shape, high, ones))
    if not found:
        raise BadInput("has no inputs", graph.name, "a model of some input")
    return tuple(found)


def _size(size: Any, name: str, place: int) -> int | str:
    """A fixed size, the symbol of an open one, or a symbol of its own for one that has no name."""
    if size.HasField("dim_value"):
        return int(size.dim_value)
    return str(size.dim_param)[:80] or f"{name}:{place}"


def _bound(graph: _Graph, name: str) -> tuple[int, bool]:
    """How many indices the smallest table has that ``name`` looks up; a mask, of ones, where it looks up
    nothing.
    """
    rows = [
        graph.stored[node.input[0]].shape[0]
        for node, position in _readers(graph, name)
        if node.op_type == "Gather" and position == 1 and node.input[0] in graph.stored
    ]
    rows = [count for count in rows if count > 0]
    return (min(rows), False) if rows else (2, "mask" in name.lower())


def _output(graph: _Graph) -> str:
    for item in graph.model.graph.output:
        if DTYPES.get(item.type.tensor_type.elem_type) in FLOATS:
            return str(item.name)
    raise BadInput("has no output of real numbers", graph.name, "an output that a loss can be made of")


def _nodes(graph: _Graph, same: Mapping[str, tuple[str, bool]]) -> Iterator[Node]:
    """Nodes in the file's order, which the checker found to be topological; twins are their originals,
    turned.
    """
    for key, (twin, turned) in same.items():
        if turned:
            yield Node("Transpose", f"{key}.T", "", (Stored(twin),), {"perm": (1, 0)}, (key,))
    scope = ""
    for index, node in enumerate(graph.model.graph.node):
        if node.op_type == "Constant":
            continue
        scope = _scope(graph, node) or scope
        arguments = tuple(_argument(graph, same, key) for key in node.input)
        attributes = {item.name: _attribute(graph, node, item) for item in node.attribute}
        name = node.name or f"{node.op_type}_{index}"
        yield Node(node.op_type, name, scope, arguments, attributes, tuple(node.output))


def _argument(graph: _Graph, same: Mapping[str, tuple[str, bool]], key: str) -> Value | Stored | None:
    if key in same:
        twin, turned = same[key]
        return Value(key) if turned else Stored(twin)
    if not key:
        return None
    return Stored(key) if key in graph.stored else Value(key)


def _attribute(graph: _Graph, node: Any, item: Any) -> Any:
    from onnx import AttributeProto, helper

    if item.type == AttributeProto.TENSOR:
        return weight_of(item.t, graph.name)
    value = helper.get_attribute_value(item)
    if (node.op_type, item.name) in TYPES:
        return DType(_dtype(value, f"{graph.name}, node {node.name!r:.80}"))
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if item.type in (AttributeProto.FLOAT, AttributeProto.INT, AttributeProto.STRING):
        return value
    if item.type in (AttributeProto.FLOATS, AttributeProto.INTS):
        return tuple(value)
    if item.type == AttributeProto.STRINGS:
        return tuple(entry.decode("utf-8", "replace") for entry in value)
    where = f"{graph.name}, node {node.name!r:.80}"
    raise BadInput(f"attribute {item.name!r:.80} is a graph or of no known kind", where, "numbers and words")


def _scope(graph: _Graph, node: Any) -> str:
    """The module that the node came from: as torch's exporters say, else the owner of its weight, else
    nothing.
    """
    for item in node.metadata_props:
        if item.key == "pkg.torch.onnx.name_scopes":
            scopes = re.findall(r"'([^']*)'", item.value[:4000])
            return str(scopes[-2]) if len(scopes) > 1 else ""
    if node.name.startswith("/"):
        return ".".join(node.name.split("/")[1:-1])
    for position in WEIGHTS.get(node.op_type, ()):
        key = node.input[position] if position < len(node.input) else ""
        if key in graph.stored:
            return str(key.rpartition(".")[0] or node.name or node.output[0])
    return ""
