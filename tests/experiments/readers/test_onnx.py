"""A model exported to ONNX is the same model again: parameters, outputs, FLOPs, and the memory of a training
step.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from experiments.core.errors import BadInput  # noqa: E402
from experiments.core.options import WorkloadOptions  # noqa: E402
from experiments.models.build import build  # noqa: E402
from experiments.profiling.capture import capture  # noqa: E402
from experiments.readers import onnx_check  # noqa: E402
from experiments.readers.base import open_file  # noqa: E402
from experiments.readers.onnx import READER  # noqa: E402
from experiments.workloads.aggregate import layer_graph  # noqa: E402
from experiments.workloads.model import ModelSource  # noqa: E402
from tests.experiments.readers.exported_models import (  # noqa: E402
    Original,
    both_steps,
    greatest_difference,
    open_batch,
    original,
    read_back,
    same_step,
)
from tests.variants import variants  # noqa: E402

pytestmark = pytest.mark.torch
by_torchs_newer_exporter = pytest.mark.skipif(
    importlib.util.find_spec("onnxscript") is None, reason="torch.onnx.export needs the package onnxscript"
)


def save(made: Original, file: Path, version: int, optimize: bool = True) -> Path:
    """By torch's exporter; ``optimize=False`` keeps normalizations apart from convolutions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            made.body.eval(),
            made.batch,
            file,
            dynamo=True,
            opset_version=version,
            dynamic_shapes=open_batch(made),
            external_data=False,
            optimize=optimize,
            verbose=False,
        )
    return file


@by_torchs_newer_exporter
@pytest.mark.parametrize(
    ("name", "version", "optimize", "options"),
    variants(
        ("mlp", 18, True, {"batch": 8}),
        ("gpt2-tiny", 23, True, {"batch": 4, "sequence": 64}),
        ("resnet18", 18, False, {"batch": 4, "image": 64}),
        ("bert", 18, True, {"batch": 4, "sequence": 32}),
        ("gpt2-tiny", 18, True, {"batch": 4, "sequence": 64}),
        ("bert", 23, True, {"batch": 4, "sequence": 32}),
        kept=4,
    ),
)
def test_an_exported_model_is_the_model_it_was(
    name: str, version: int, optimize: bool, options: dict[str, int], tmp_path: Path
) -> None:
    made = original(name, optimizer="adamw", **options)
    source = read_back(save(made, tmp_path / "model.onnx", version, optimize), made.source.options)
    assert greatest_difference(made, source) < 1e-4
    expected, ours = both_steps(made, source)
    same_step(expected, ours, peak=0.02)
    assert set(layer_graph(ours).layer) <= set(layer_graph(expected).layer)


# Small graphs made by hand.


def graph_of(
    nodes: list[Any], weights: dict[str, Any], shape: list[Any], out: list[Any], version: int = 21
) -> Any:
    """A model from input ``x`` to output ``y``, both float32."""
    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, out)],
        stored,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=10)


def perceptron(**changes: Any) -> Any:
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.normal(size=(3, 4)).astype(np.float32),
        "b1": rng.normal(size=4).astype(np.float32),
        "w2": rng.normal(size=(4, 2)).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"]),
        helper.make_node("Add", ["a", "b1"], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("MatMul", ["c", "w2"], ["y"]),
    ]
    return graph_of(nodes, {**weights, **changes}, ["n", 3], ["n", 2])


def write(model: Any, file: Path) -> Path:
    file.write_bytes(model.SerializeToString())
    return file


def test_a_hand_made_perceptron(tmp_path: Path) -> None:
    """12 + 4 + 8 parameters; forward 2 x 5 x (3 x 4 + 4 x 2) = 200 FLOPs, backward twice less the first
    input's 120.
    """
    source = read_back(write(perceptron(), tmp_path / "p.onnx"), WorkloadOptions(batch=5, optimizer="sgd"))
    step = capture(source)
    assert step.facts["parameters"] == 24
    assert step.ops.flops[step.ops.phase == 0].sum() == 200
    assert step.flops == 200 + 400 - 120
    assert step.facts["batch"] == 5
    assert step.facts["optimizer"] == "sgd"


def test_masks_and_scalars_are_no_parameters(tmp_path: Path) -> None:
    """A bias is trained; minus infinity, a single number and running statistics are not."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "mask"], ["b"]),
        helper.make_node("Mul", ["b", "two"], ["c"]),
        helper.make_node("Add", ["c", "bias"], ["d"]),
        helper.make_node("BatchNormalization", ["d", "scale", "shift", "mean", "variance"], ["y"]),
    ]
    ones = np.ones(4, np.float32)
    weights = {
        "w": np.arange(12, dtype=np.float32).reshape(3, 4),
        "mask": np.array([0, -np.inf, 0, -1e9], np.float32),
        "two": np.float32(2),
        **dict.fromkeys(("bias", "scale", "shift", "mean", "variance"), ones),
    }
    model = graph_of(nodes, weights, ["n", 3], ["n", 4])
    source = read_back(write(model, tmp_path / "kinds.onnx"), WorkloadOptions())
    assert source.program is not None
    assert sorted(source.program.parameters) == ["bias", "scale", "shift", "w"]
    assert sorted(source.program.buffers) == ["mean", "variance"]
    assert sorted(source.program.constants) == ["mask", "two"]


def test_weights_that_export_copied_are_one_again(tmp_path: Path) -> None:
    """An embedding and the transposed copy of it that the output layer multiplies by."""
    table = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "i"], ["e"]),
        helper.make_node("MatMul", ["e", "head"], ["y"]),
    ]
    model = graph_of(nodes, {"table": table, "head": np.ascontiguousarray(table.T)}, ["n", 2], ["n", 2, 7])
    source = read_back(write(model, tmp_path / "tied.onnx"), WorkloadOptions(batch=2, training=False))
    assert source.program is not None
    assert list(source.program.parameters) == ["table"]
    indices = torch.tensor([[0.0, 6.0], [3.0, 3.0]])
    with torch.no_grad():
        ours = build(source).module.body.eval()(indices)
    assert torch.allclose(ours, torch.from_numpy(table[indices.long().numpy()] @ table.T))


def test_shapes_computed_in_the_graph_are_numbers(tmp_path: Path) -> None:
    """Shape, Gather, Concat and Reshape leave one view behind: what a step does is the model's own work."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Concat", ["n", "rest"], ["wanted"], axis=0),
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Reshape", ["a", "wanted"], ["y"]),
    ]
    weights = {
        "zero": np.array([0]),
        "rest": np.array([2, -1]),
        "w": np.ones((3, 4), np.float32),
    }
    model = graph_of(nodes, weights, ["n", 3], ["n", 2, 2])
    for batch in (2, 5):
        source = read_back(
            write(model, tmp_path / "shapes.onnx"), WorkloadOptions(batch=batch, training=False)
        )
        step = capture(source)
        assert [name for name, view in zip(step.ops.target, step.ops.view, strict=True) if not view] == [
            "aten.mm.default"
        ]
        assert step.tensors.shape[-1] == (batch, 4)


def test_a_fixed_batch_inside_the_graph_says_so(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Reshape", ["a", "six"], ["y"])]
    model = graph_of(nodes, {"w": np.ones((3, 4), np.float32), "six": np.array([6, 4])}, [6, 3], [6, 4])
    file = write(model, tmp_path / "fixed.onnx")
    assert build(read_back(file, WorkloadOptions())).inputs[0].shape == (6, 3)
    with pytest.raises(BadInput, match=r"shapes that do not fit|node 1 \(Reshape"):
        build(read_back(file, WorkloadOptions(batch=4)))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda m: m.graph.node.append(helper.make_node("NonZero", ["a"], ["z"])), "'NonZero' is not known"),
        (lambda m: m.graph.node.append(helper.make_node("Loop", ["a"], ["z"])), "'Loop' is not known"),
        (lambda m: m.graph.node[0].__setattr__("domain", "com.acme"), "'com.acme.MatMul' is not known"),
        (lambda m: m.graph.node[3].input.__setitem__(0, "nothing"), "not valid ONNX"),
        (lambda m: m.graph.initializer[0].dims.__setitem__(0, 7), "too small for the declared shape"),
        (lambda m: m.graph.initializer[0].dims.extend([1] * 9), "11 dimensions"),
        (lambda m: m.graph.initializer[0].dims.__setitem__(0, -3), "sizes from 0"),
        (lambda m: m.graph.initializer[0].__setattr__("data_type", 8), "STRING data|element type 8"),
        (
            lambda m: m.graph.initializer[0].__setattr__("data_location", 1),
            "keeps its values in another file",
        ),
        (lambda m: m.graph.input[0].type.tensor_type.__setattr__("elem_type", 8), "tensors with a shape"),
        (
            lambda m: m.graph.input[0].type.tensor_type.shape.dim[1].__setattr__("dim_param", "wide"),
            "open size 'wide'",
        ),
        (lambda m: m.graph.node.__delitem__(slice(None)), "holds no graph"),
        (lambda m: m.opset_import[0].__setattr__("version", 3), "operator set 3"),
        (lambda m: m.opset_import[0].__setattr__("version", 999), "operator set 999"),
    ],
)
def test_a_bad_graph_is_refused(change: Callable[[Any], Any], reason: str, tmp_path: Path) -> None:
    model = perceptron()
    change(model)
    with pytest.raises(BadInput, match=reason):
        open_file(write(model, tmp_path / "bad.onnx"), "onnx", WorkloadOptions())


def test_weights_in_another_file_are_never_opened(tmp_path: Path) -> None:
    model = perceptron()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    with pytest.raises(BadInput, match="tensor 'w1': keeps its values in another file"):
        open_file(write(model, tmp_path / "outside.onnx"), "auto", WorkloadOptions())


def test_functions_of_the_file_are_put_in_place_and_counted_first(tmp_path: Path) -> None:
    """Sixteen functions, each calling the one before twice: 65,536 nodes from 32 lines."""
    model = perceptron()
    version = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    body = [helper.make_node("Relu", ["i"], ["o"])]
    model.functions.append(helper.make_function("own", "F0", ["i"], ["o"], body, version))
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.graph.node[2].op_type, model.graph.node[2].domain = "F0", "own"
    file = write(model, tmp_path / "functions.onnx")
    source = open_file(file, "auto", WorkloadOptions(training=False)).reading.value
    assert [node.op for node in source.program.nodes] == ["MatMul", "Add", "Relu", "MatMul"]
    for level in range(1, 17):
        twice = [
            helper.make_node(f"F{level - 1}", ["i"], ["m"], domain="own"),
            helper.make_node(f"F{level - 1}", ["m"], ["o"], domain="own"),
        ]
        model.functions.append(helper.make_function("own", f"F{level}", ["i"], ["o"], twice, version))
    model.graph.node[2].op_type = "F16"
    with pytest.raises(BadInput, match=f"65539 nodes.*at most {onnx_check.MOST_NODES}"):
        open_file(write(model, file), "auto", WorkloadOptions())


def test_values_worked_out_beforehand_are_bounded(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("ConstantOfShape", ["huge"], ["c"]),
        helper.make_node("ReduceSum", ["c"], ["t"], keepdims=0),
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "t"], ["y"]),
    ]
    weights = {"huge": np.array([1 << 19, 1 << 19]), "w": np.ones((3, 4), np.float32)}
    source = read_back(
        write(graph_of(nodes, weights, ["n", 3], ["n", 4]), tmp_path / "h.onnx"), WorkloadOptions()
    )
    with pytest.raises(BadInput, match=r"node 0 \(ConstantOfShape.*works out 274877906944 numbers"):
        build(source)


def test_a_file_is_recognized_by_its_content(tmp_path: Path) -> None:
    opened = open_file(write(perceptron(), tmp_path / "no-name"), "auto", WorkloadOptions())
    assert opened.reader is READER
    assert isinstance(opened.reading.value, ModelSource)
    for head in (b"", b"\x08", b"\x08\x0a", b"\x0a\x04abcd", b"PK\x03\x04", b"{", b"\x08\x00\x3a\x01"):
        assert not READER.recognizes(head, "model.onnx")


def attention_of(added: Any, axis: int = -1) -> Any:
    """softmax(x x^T / 2 + mask) x over [batch, 2, 3, 4], as older exporters write it out."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["k"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["x", "k"], ["s"]),
        helper.make_node("Div", ["s", "two"], ["t"]),
        helper.make_node("Add", ["t", "mask"], ["u"]),
        helper.make_node("Softmax", ["u"], ["v"], axis=axis),
        helper.make_node("MatMul", ["v", "x"], ["y"]),
    ]
    weights = {"two": np.float32(2), "mask": np.asarray(added, np.float32)}
    return graph_of(nodes, weights, ["n", 2, 3, 4], ["n", 2, 3, 4])


HIDING = np.triu(np.full((3, 3), -np.inf), 1)


@pytest.mark.parametrize("added", [HIDING, np.arange(9).reshape(1, 1, 3, 3)])
def test_attention_in_pieces_is_attention_again(added: Any, tmp_path: Path) -> None:
    model = attention_of(added)
    source = read_back(write(model, tmp_path / "a.onnx"), WorkloadOptions(batch=2, training=False))
    x = torch.randn(2, 2, 3, 4)
    reference = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x.numpy()})[0]
    with torch.no_grad():
        assert np.allclose(build(source).module.body.eval()(x).numpy(), reference, atol=1e-5)
    assert capture(source).facts["attention"] == "flash"


def test_a_softmax_over_another_dimension_is_no_attention(tmp_path: Path) -> None:
    model = attention_of(np.zeros((3, 3)), axis=2)
    source = read_back(write(model, tmp_path / "a.onnx"), WorkloadOptions(batch=2, training=False))
    assert capture(source).facts["attention"] == "math"


@pytest.mark.parametrize(
    ("constant", "target"),
    [(2**0.5, "aten.gelu.default"), (1.5, "aten.erf.default"), (1.41421, "aten.gelu.default")],
)
def test_a_gelu_is_known_by_its_values(constant: float, target: str, tmp_path: Path) -> None:
    """x / 2 (1 + erf(x / c)) is a GELU at the square root of two, as rounded as exporters leave it, and
    nothing else.
    """
    nodes = [
        helper.make_node("Div", ["x", "c"], ["a"]),
        helper.make_node("Erf", ["a"], ["b"]),
        helper.make_node("Add", ["b", "one"], ["d"]),
        helper.make_node("Mul", ["x", "d"], ["e"]),
        helper.make_node("Mul", ["e", "half"], ["y"]),
    ]
    weights = {"c": np.float32(constant), "one": np.float32(1), "half": np.float32(0.5)}
    model = graph_of(nodes, weights, ["n", 4], ["n", 4])
    source = read_back(write(model, tmp_path / "g.onnx"), WorkloadOptions(batch=3, training=False))
    assert target in capture(source).ops.target
