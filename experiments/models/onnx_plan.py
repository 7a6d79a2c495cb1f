"""How an ONNX graph runs at given shapes: what follows from the shapes alone is worked out now, the rest are
calls.

Exported graphs compute their shapes in the graph (``Shape``, ``Gather``, ``Concat``, ``Reshape``). Those
values are numbers here, not tensors, so that the calls that remain are the model's own operations.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from experiments.core.errors import BadInput, LabError
from experiments.models.exported import MISFITS, Call, Mode, Now, Planned, run_one
from experiments.models.onnx_fusion import fuse
from experiments.models.onnx_ops import OPERATORS, How
from experiments.workloads.program import DType, GraphProgram, Node, Stored, Value, Weight

Array = npt.NDArray[Any]

#: Most numbers that may be worked out beforehand for one value.
MOST_KNOWN = 1 << 24


def plan_calls(program: GraphProgram, shapes: Sequence[tuple[int, ...]], outputs: tuple[str, ...]) -> Planned:
    """The plan for inputs of ``shapes``; ``BadInput`` names the node that cannot be carried out."""
    with _disable_current_modes(), FakeTensorMode(), torch.no_grad():
        needed, wanted = _find_needed(program, (program.output, *outputs))
        plan = _Plan(program, wanted)
        for entry, shape in zip(program.inputs, shapes, strict=True):
            plan.values[entry.name] = torch.empty(shape, dtype=getattr(torch, entry.dtype))
        for index in needed:
            plan.add(program.nodes[index], index)
        out = plan.read(Value(program.output))
        if not isinstance(out, Tensor):
            raise BadInput(
                "the output does not depend on the input", f"output {program.output!r:.80}", "a model"
            )
        shapes_of = {name: tuple(value.shape) for name, value in plan.values.items()}
        given = tuple(plan.output_name(name) for name in outputs)
        calls = fuse(plan.calls, shapes_of, plan.constants, frozenset(given))
        return Planned(calls, plan.constants, tuple(out.shape), given)


def _find_needed(program: GraphProgram, outputs: Sequence[str]) -> tuple[list[int], frozenset[str]]:
    """Indices of the nodes that the outputs are made of, in order, and the values that are read."""
    wanted, kept = set(outputs), []
    for index in range(len(program.nodes) - 1, -1, -1):
        node = program.nodes[index]
        if wanted.intersection(node.outputs):
            kept.append(index)
            wanted.update(read.name for read in node.arguments if isinstance(read, Value))
    return kept[::-1], frozenset(wanted)


@dataclass
class _Plan:
    """Values so far: tensors without memory for what depends on the input, arrays for what is known."""

    program: GraphProgram
    wanted: frozenset[str]
    values: dict[str, Tensor | Array] = field(default_factory=dict)
    stored: dict[str, Tensor] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    constants: dict[str, Weight] = field(default_factory=dict)

    @property
    def version(self) -> int:
        return self.program.operators.get("", 0) or self.program.operators.get("ai.onnx", 0)

    def read(self, argument: Any) -> Any:
        """A tensor, an array, or ``None`` for an argument left out."""
        if isinstance(argument, Value):
            return self.values[argument.name]
        if not isinstance(argument, Stored):
            return None
        if argument.name in self.program.constants:
            return array_of(self.program.constants[argument.name])
        if argument.name not in self.stored:
            weight = {**self.program.parameters, **self.program.buffers}[argument.name]
            self.stored[argument.name] = torch.empty(weight.shape, dtype=getattr(torch, weight.dtype))
        return self.stored[argument.name]

    def output_name(self, name: str) -> str:
        """The name of an output, or that of the constant which holds what does not depend on the input."""
        found = self.values.get(name)
        if name in self.program.constants:
            found = array_of(self.program.constants[name])
        return self._keep(found).name if isinstance(found, np.ndarray) else name

    def add(self, node: Node, index: int) -> None:
        where = f"node {index} ({node.op} {node.name!r:.80})"
        given = [self.read(argument) for argument in node.arguments]
        if node.op in ("Shape", "Size") and isinstance(given[0], Tensor):
            self.values[node.outputs[0]] = _shape(node, given[0])
        elif not any(isinstance(value, Tensor) for value in given):
            self._bind(node, _evaluate(node, given, self.version, where))
        else:
            self._call(node, given, where)

    def _bind(self, node: Node, results: Sequence[Any]) -> None:
        self.values.update((name, value) for name, value in zip(node.outputs, results, strict=False) if name)

    def _call(self, node: Node, given: list[Any], where: str) -> None:
        operator, arguments, run = OPERATORS[node.op], [], []
        for place, (argument, value) in enumerate(zip(node.arguments, given, strict=True)):
            known = not isinstance(value, Tensor)
            if place in operator.host and not known:
                raise BadInput(
                    f"argument {place} depends on the data", where, "one that the file's shapes decide"
                )
            if (
                known
                and value is not None
                and place not in operator.host
                and not _number(operator.numbers, value, given)
            ):
                argument = self._keep(value)
                value = self.read(argument)
            elif known and value is not None:
                argument = value = value.tolist() if place in operator.host or value.ndim else value.item()
                if isinstance(value, list) and place not in operator.host:
                    argument = value = np.ravel(value)[0].item()
            arguments.append(argument)
            run.append(value)
        attributes = self._attributes(node)
        mode = Mode(False, self.program.dtype, getattr(torch, self.program.dtype))

        def function(now: Mode, *values: Any) -> Any:
            return operator.function(
                How(attributes, self.version, now.training, now.stored, now.real), *values
            )

        call = Call(
            function, node.name, node.scope, (Now(), *arguments), {}, node.outputs, node.op, attributes
        )
        result = run_one(call, (mode, *run), {}, where)
        several = result if isinstance(result, tuple) else (result,)
        if self.wanted.intersection(node.outputs[len(several) :]):
            raise BadInput(f"output {len(several)} is not offered", where, f"{len(several)} outputs")
        self._bind(node, several)
        self.calls.append(call)

    def _attributes(self, node: Node) -> dict[str, Any]:
        found = dict(node.keywords)
        if node.op == "Split":
            found.setdefault("num_outputs", len(node.outputs))
        if node.op == "Softmax":
            found.setdefault("axis", -1 if self.version >= 13 else 1)
        return found

    def _keep(self, value: Array) -> Stored:
        """A constant that an operation reads, kept once however often it appears."""
        weight = Weight(str(value.dtype), value.shape, np.ascontiguousarray(value).tobytes())
        if weight.dtype not in ("float64", "float32", "float16") and value.dtype.kind not in "iub":
            weight = Weight("bfloat16", weight.shape, weight.data)
        digest = hashlib.sha256(repr((weight.dtype, weight.shape)).encode() + weight.data).hexdigest()[:16]
        name = f"constants.{digest}"
        if name not in self.constants:
            self.constants[name] = weight
            self.stored[name] = torch.empty(weight.shape, dtype=getattr(torch, weight.dtype))
        return Stored(name)


def _number(offered: bool, value: Array, given: Sequence[Any]) -> bool:
    """Whether a known single value goes into an elementwise operation as a number, its rank adding none."""
    rank = max((other.ndim for other in given if isinstance(other, Tensor)), default=0)
    return offered and value.size == 1 and value.ndim <= rank


def array_of(weight: Weight) -> Array:
    if weight.dtype == "bfloat16":
        import ml_dtypes

        return np.frombuffer(weight.data, ml_dtypes.bfloat16).reshape(weight.shape)
    return np.frombuffer(weight.data, weight.dtype).reshape(weight.shape)


def _shape(node: Node, value: Tensor) -> Array:
    if node.op == "Size":
        return np.array(value.numel(), np.int64)
    sizes = list(value.shape)[node.keywords.get("start", 0) : node.keywords.get("end")]
    return np.array(sizes, np.int64)


def _evaluate(node: Node, given: Sequence[Any], version: int, where: str) -> Sequence[Any]:
    """What a node gives on known values, by the library's reference of each operator."""
    try:
        from onnx import helper
        from onnx.reference import ReferenceEvaluator
    except ImportError:
        raise LabError("building from ONNX needs the package onnx, 1.21 or newer") from None
    _refuse_large(node, given, where)
    names = [f"i{place}" if value is not None else "" for place, value in enumerate(given)]
    outputs = [name or f"o{place}" for place, name in enumerate(node.outputs)]
    attributes = {name: _plain(value) for name, value in node.keywords.items()}
    proto = helper.make_node(node.op, names, outputs, **attributes)
    feeds = {name: value for name, value in zip(names, given, strict=True) if name}
    try:
        results = ReferenceEvaluator(proto, opsets={"": version}).run(None, feeds)
    except MISFITS as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise BadInput(f"cannot be worked out: {text:.200}", where, "values that fit") from error
    return [np.asarray(value) for value in results]


def _plain(value: Any) -> Any:
    """An attribute as the library takes it."""
    from onnx import helper, numpy_helper

    if isinstance(value, DType):
        return helper.np_dtype_to_tensor_dtype(np.dtype(value.name)) if value.name != "bfloat16" else 16
    return numpy_helper.from_array(array_of(value)) if isinstance(value, Weight) else value


def _refuse_large(node: Node, given: Sequence[Any], where: str) -> None:
    """Operators whose result may be far larger than their arguments are held to a limit before they run."""
    if node.op in ("ConstantOfShape", "Expand", "Tile"):
        sizes = given[-1] if node.op != "Tile" else np.append(given[1], given[0].size)
        count = math.prod(max(int(size), 1) for size in np.ravel(sizes))
    elif node.op == "Range":
        start, end, step = (float(np.ravel(value)[0]) for value in given)
        count = int((end - start) / step) if step and math.isfinite((end - start) / step) else 0
    else:
        shapes = [value.shape for value in given if value is not None]
        count = (
            math.prod(max(sizes) for sizes in zip(*(_aligned(shape) for shape in shapes), strict=True))
            if shapes
            else 0
        )
    if count > MOST_KNOWN:
        raise BadInput(f"works out {count} numbers beforehand", where, f"at most {MOST_KNOWN}")


def _aligned(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (1,) * (8 - len(shape)) + shape
