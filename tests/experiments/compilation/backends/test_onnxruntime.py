"""ONNX Runtime's levels on graphs small enough to count by hand; an uploaded file runs as its own graph."""

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

from onnx import TensorProto, helper  # noqa: E402
from torch import nn  # noqa: E402

from experiments.compilation.live.backends import CompilationFailed, Task, compile_task  # noqa: E402
from experiments.compilation.live.verify import verify  # noqa: E402
from experiments.core.errors import BadInput, Infeasible  # noqa: E402
from experiments.core.options import WorkloadOptions  # noqa: E402
from experiments.core.spec import Workload  # noqa: E402
from experiments.models.build import build  # noqa: E402
from experiments.sources import load  # noqa: E402

pytestmark = pytest.mark.torch


def test_a_block_of_convolution_norm_and_relu_ends_as_one_node() -> None:
    """The exporter folds the norm into the convolution; level "extended" fuses the ReLU into it too."""
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval().requires_grad_(False)
    task = Task(module, (torch.randn(1, 3, 8, 8),), "cpu")
    made = compile_task("onnxruntime", {"level": "extended"}, task)
    levels = made.report["levels"]
    assert made.report["exported"]["ops"] == {"Conv": 1, "Relu": 1}
    assert [levels[name]["nodes"] for name in ("disable_all", "basic", "extended")] == [2, 2, 1]
    assert levels["extended"]["ops"] == {"com.microsoft.FusedConv": 1}
    assert made.metrics["onnx_nodes"] == 1
    assert verify(task, made, 0).ok


def uploaded(file: Path, nodes: list[object]) -> Task:
    sizes = ["batch", 4]
    graph = helper.make_graph(
        nodes,
        "negated relu",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, sizes)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), file)
    source = load(Workload(str(file), options=WorkloadOptions(batch=3, training=False))).value
    model = build(source)
    inputs = tuple(torch.randn(spec.shape) for spec in model.batch(training=False))
    return Task(model.module, inputs, "cpu", source=source, file=file)


def test_an_uploaded_graph_is_run_as_it_stands_in_the_file(tmp_path: Path) -> None:
    """An identity in the middle: still there without optimization, gone at level "basic"."""
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Identity", ["a"], ["b"]),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    task = uploaded(tmp_path / "model.onnx", nodes)
    made = compile_task("onnxruntime", {"level": "basic"}, task)
    assert made.report["graph"] == "the uploaded file"
    assert made.report["levels"]["disable_all"]["ops"] == {"Neg": 1, "Identity": 1, "Relu": 1}
    assert made.report["levels"]["basic"]["ops"] == {"Neg": 1, "Relu": 1}
    assert verify(task, made, 0).bit_equal


def test_a_model_whose_data_decide_has_no_graph_to_run(capfd: pytest.CaptureFixture[str]) -> None:
    class Chosen(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1 if x.sum() > 0 else x - 1

    with pytest.raises(BadInput, match="control flow that its data decide"):
        compile_task("onnxruntime", {}, Task(Chosen(), (torch.randn(2, 2),), "cpu"))
    assert "def forward" not in "".join(capfd.readouterr())


def test_what_it_cannot_do_here_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    half = nn.Linear(2, 2).to(torch.bfloat16)
    with pytest.raises(Infeasible, match=r"unsupported here.*bfloat16"):
        compile_task("onnxruntime", {}, Task(half, (torch.ones(1, 2, dtype=torch.bfloat16),), "cpu"))
    with pytest.raises(BadInput, match="forward passes"):
        compile_task("onnxruntime", {}, Task(nn.Linear(2, 2), (torch.ones(1, 2),), "cpu", training=True))
    inverse = Task(_Inverse(), (torch.eye(2),), "cpu")
    with pytest.raises(CompilationFailed, match="onnx export: "):
        compile_task("onnxruntime", {}, inverse)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(Infeasible, match="unsupported here: the package onnxruntime is not installed"):
        compile_task("onnxruntime", {}, Task(nn.Linear(2, 2), (torch.ones(1, 2),), "cpu"))


class _Inverse(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.linalg.matrix_exp(x)
        return found
