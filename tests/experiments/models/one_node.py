"""A model of one ONNX node and values for it: carried out by us, and by onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import torch

from experiments.models.exported import Exported
from experiments.models.onnx_ops import OPERATORS
from experiments.models.onnx_plan import plan_calls
from experiments.readers.onnx_graph import program_of
from experiments.workloads.program import GraphProgram, Input

Array = npt.NDArray[Any]


def reals(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def positive(*shape: int) -> Array:
    return np.abs(reals(*shape)) + np.float32(0.5)


def different(*shape: int) -> Array:
    """Values in some order, no two of them equal."""
    values = np.random.default_rng(0).permutation(int(np.prod(shape)))
    return values.reshape(shape).astype(np.float32)


def whole(*values: int) -> Array:
    return np.array(values, np.int64)


def program_for(model: Any, feeds: Mapping[str, Array], output: str) -> GraphProgram:
    """``program_of`` without its rules about what a model's inputs and outputs are."""
    shadow = onnx.ModelProto()
    shadow.CopyFrom(model)
    del shadow.graph.input[:], shadow.graph.output[:]
    shadow.graph.input.append(onnx.helper.make_tensor_value_info("x", 1, [1]))
    shadow.graph.output.append(onnx.helper.make_tensor_value_info(output, 1, [1]))
    program, _ = program_of(shadow, "0", "case")
    return replace(
        program,
        inputs=tuple(Input(name, str(value.dtype), value.shape) for name, value in feeds.items()),
        output=output,
        parameters={},
        constants={**program.constants, **program.parameters},
    )


def by_us(model: Any, feeds: Mapping[str, Array], output: str, training: bool = False) -> Array:
    """Our result; arguments that must be known beforehand are stored in the graph."""
    filled = onnx.ModelProto()
    filled.CopyFrom(model)
    node = filled.graph.node[0]
    host = OPERATORS[node.op_type].host
    known = {name for place, name in enumerate(node.input) if place in host and name}
    filled.graph.initializer.extend(onnx.numpy_helper.from_array(feeds[name], name) for name in known)
    program = program_for(filled, {n: value for n, value in feeds.items() if n not in known}, output)
    plan = plan_calls(program, [entry.shape for entry in program.inputs], (program.output,))  # type: ignore[misc]
    module = Exported(program, plan, weights=True).train(training)
    batch = [torch.from_numpy(np.array(feeds[entry.name])) for entry in program.inputs]
    with torch.no_grad():
        out = module(*batch)
    assert tuple(out.shape) == plan.output_shape
    return np.asarray(out.numpy())


def node_model(
    op: str, inputs: Sequence[Array | None], version: int, outputs: int = 1, **attributes: Any
) -> Any:
    """The model and its feeds; ``None`` leaves an argument out."""
    names = [f"x{i}" if value is not None else "" for i, value in enumerate(inputs)]
    results = [f"y{i}" for i in range(outputs)]
    infos = [
        onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in zip(names, inputs, strict=True)
        if value is not None
    ]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(op, names, results, **attributes)],
        "one",
        infos,
        [onnx.ValueInfoProto(name=name) for name in results],
    )
    opset = onnx.helper.make_opsetid("", version)
    ir_version = 10 if version > 18 else 8
    return onnx.helper.make_model(graph, opset_imports=[opset], ir_version=ir_version)


def by_onnxruntime(model: Any, feeds: Mapping[str, Array]) -> list[Array]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return [np.asarray(value) for value in session.run(None, dict(feeds))]


def agrees(
    op: str, *inputs: Array | None, version: int = 21, outputs: int = 1, **attributes: Any
) -> list[Array]:
    """Every output of ours is onnxruntime's; what onnxruntime gives."""
    model = node_model(op, inputs, version, outputs, **attributes)
    feeds = {f"x{i}": value for i, value in enumerate(inputs) if value is not None}
    wanted = by_onnxruntime(model, feeds)
    for number, expected in enumerate(wanted):
        ours = by_us(model, feeds, f"y{number}")
        assert ours.shape == expected.shape, (op, attributes, ours.shape, expected.shape)
        assert ours.dtype == expected.dtype, (op, attributes)
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5, err_msg=f"{op} {attributes}")
    return wanted
