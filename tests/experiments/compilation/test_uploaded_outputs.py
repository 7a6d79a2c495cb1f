"""An uploaded graph with several outputs: all of them are compiled and verified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from experiments.compilation.interface import Draft, Graph, Ref, Rewritten, Workbench  # noqa: E402
from experiments.compilation.policies.dce import Dce  # noqa: E402
from experiments.core.spec import load_spec  # noqa: E402
from experiments.run import run  # noqa: E402

pytestmark = pytest.mark.torch


class Heads(nn.Module):
    """Scores, which of them are positive, their sum in a state of its own, and the input itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Any:
        scores = self.layer(x)
        return scores > 0, scores, (scores.sum(-1, keepdim=True), x)


def saved_as_pt2(folder: Path) -> Path:
    torch.export.save(torch.export.export(Heads().eval(), (torch.ones(2, 3),)), folder / "heads.pt2")
    return folder / "heads.pt2"


def saved_as_onnx(folder: Path) -> Path:
    onnx = pytest.importorskip("onnx")
    helper, types = onnx.helper, onnx.TensorProto
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w"], ["scores"]),
        node("Greater", ["scores", "zero"], ["positive"]),
        node("ReduceSum", ["scores", "last"], ["sums"], keepdims=1),
        node("ArgMax", ["scores"], ["best"], axis=-1, keepdims=0),
    ]
    stored = {"w": torch.randn(3, 4), "zero": torch.zeros(1), "last": torch.tensor([-1])}
    sizes = {"positive": (types.BOOL, 4), "scores": (types.FLOAT, 4), "sums": (types.FLOAT, 1)}
    graph = helper.make_graph(
        nodes,
        "heads",
        [helper.make_tensor_value_info("x", types.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info(name, kind, ["n", size]) for name, (kind, size) in sizes.items()]
        + [helper.make_tensor_value_info("best", types.INT64, ["n"])],
        [onnx.numpy_helper.from_array(value.numpy(), name) for name, value in stored.items()],
    )
    opset = [helper.make_opsetid("", 21)]
    file = folder / "heads.onnx"
    file.write_bytes(helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString())
    return file


def outcome(policy: str, file: Path, **knobs: Any) -> Any:
    spec = {"family": "compilation", "policy": policy, "knobs": knobs, "mode": "measured"}
    workload = {"source": str(file), "options": {"batch": 2}}
    return run(load_spec({**spec, "workload": workload, "hardware": "local"}))


@pytest.fixture(params=[saved_as_pt2, saved_as_onnx])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    saved: Path = request.param(tmp_path)
    return saved


def test_every_output_is_compiled_and_a_wrong_last_one_is_seen(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = outcome("dce", file)
    assert right.status == "ok", right.reason
    kept = {row["target"] for row in right.plan["after"]}
    assert kept >= {"aten.gt.Scalar", "aten.sum.dim_IntList"} or kept >= {"aten.gt.Tensor"}, kept
    trained = outcome("dce", file, training=True)
    assert trained.status == "ok", trained.reason

    def wrong(self: Dce, graph: Graph, bench: Workbench) -> Rewritten:
        draft = Draft(graph, bench.types)
        (total,) = (node for node in graph.ops if node.target == "aten.sum.dim_IntList")
        draft.replace(Ref(total.name), draft.op("aten.amax.default", *total.arguments[:3]))
        return Rewritten(draft.finish())

    monkeypatch.setattr(Dce, "rewrite", wrong)
    found = outcome("dce", file)
    assert found.status == "rejected"
    assert "output 2: element" in found.reason


def test_onnx_runtime_gives_every_output_in_the_models_own_structure(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    found = outcome("onnxruntime", saved_as_onnx(tmp_path))
    assert found.status == "ok", found.reason
