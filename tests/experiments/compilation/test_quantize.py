"""Quantized graphs held to numpy's codes, and what is refused, rejected or unsupported."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.compilation.interface import Approximation, Recipe, Rewritten
from experiments.compilation.live import approximation, backends
from experiments.compilation.live.backends.base import Compiled, Task
from experiments.compilation.live.costs import Bench, MeasuredPrices
from experiments.compilation.live.kept_weights import KeptWeight, channel_sqnr, weight_sqnr, with_kept
from experiments.compilation.live.lower import lower
from experiments.compilation.live.types import Inference
from experiments.compilation.live.verify import unfriendly, verify
from experiments.compilation.planning.numerics.quantization import quantize
from experiments.compilation.policies.quantize import Quantize
from experiments.core.errors import BadInput, Infeasible
from experiments.core.spec import load_spec
from experiments.run import run
from tests.experiments.compilation.graphs import targets

pytestmark = pytest.mark.torch


class Tied(nn.Module):
    """A table that is looked up and multiplied by."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x: Tensor) -> Any:
        return self.head(self.table(x))


MODELS: dict[str, tuple[nn.Module, Tensor, dict[str, int]]] = {
    "linear": (nn.Linear(7, 6), torch.randn(3, 7), {"weight": 0}),
    "grouped": (nn.Conv2d(4, 6, 3, groups=2), torch.randn(2, 4, 5, 5), {"weight": 0}),
    "transposed": (nn.ConvTranspose2d(4, 6, 3), torch.randn(2, 4, 5, 5), {"weight": 1}),
    "tied": (Tied(), torch.arange(4).reshape(2, 2), {"table.weight": 0}),
}
POLICIES = (
    Quantize(),
    Quantize(bits=4, granularity="group", group=5, symmetric=False, scale="float16"),
    Quantize(bits=3, granularity="tensor", symmetric=False),
    Quantize(bits=2, granularity="group", group=64),
)


def carried_out(module: nn.Module, policy: Quantize, *inputs: Tensor) -> tuple[Task, Rewritten, Compiled]:
    task = Task(module.eval().requires_grad_(False), inputs, "cpu")
    done = policy.rewrite(task.graph, Bench(Inference(), MeasuredPrices("cpu")))
    return task, done, Compiled(lower(done.graph, task.origin), 0.0, 0.0)


def with_values(task: Task, policy: Quantize, weights: dict[str, int]) -> Task:
    """The task whose weights are what numpy's codes stand for."""
    found = []
    for path, axis in weights.items():
        weight = task.module.get_parameter(path)
        kept = torch.from_numpy(quantize(weight.numpy(), policy.scheme, axis).values)
        found.append(KeptWeight(path, weight, kept, 0))
    return replace(task, module=with_kept(task.module, found))


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: f"{policy.bits}-{policy.granularity}")
@pytest.mark.parametrize("model", MODELS)
def test_the_graphs_codes_are_those_of_numpy(model: str, policy: Quantize) -> None:
    module, x, weights = MODELS[model]
    task, done, ours = carried_out(module, policy, x)
    standing = with_values(task, policy, weights)
    assert verify(standing, ours, 0).ok, verify(standing, ours, 0).counterexample
    sizes = sum(  # of codes, scales and zero points; what else is read are biases
        policy.scheme.bytes(weight.shape[axis], weight.numel() // weight.shape[axis])
        for path, axis in weights.items()
        for weight in (module.get_parameter(path),)
    )
    biases = sum(4 * value.numel() for name, value in module.named_parameters() if name.endswith("bias"))
    assert approximation.constant_bytes(done.graph, training=False) == sizes + biases


def test_a_channel_of_zeros_and_an_outlier_row_end_to_end() -> None:
    layer = nn.Linear(256, 256, bias=False)
    with torch.no_grad():
        layer.weight[3] = 0.0
        layer.weight[7] *= 100
    noise = []
    for granularity in ("tensor", "channel", "group"):
        policy = Quantize(bits=4, granularity=granularity, group=32)
        _, _, ours = carried_out(layer, policy, torch.eye(256))
        kept = ours.call(torch.eye(256)).t()
        assert torch.equal(kept[3], torch.zeros(256))
        others = [row for row in range(256) if row != 7]
        noise.append(float((kept - layer.weight)[others].square().sum()))
    signal = float(layer.weight[others].square().sum())
    assert noise[0] > 10 * noise[1] > noise[2]
    assert noise[0] == pytest.approx(signal, rel=1e-3)  # 0 dB: all but the outlier became zero


def test_eight_bit_activations_multiply_whole_numbers() -> None:
    """Codes of 20 tokens by hand: a scale for each, sums in 32 bits, scales outside."""
    layer, x = nn.Linear(32, 24), torch.randn(20, 32)
    _, done, ours = carried_out(layer, Quantize(activations="dynamic"), x)
    assert "aten._int_mm.default" in targets(done.graph)
    weight, scales = layer.weight.numpy(), x.numpy().astype(np.float64)
    step = np.abs(scales).max(1, keepdims=True) / 127
    kept = quantize(weight, Quantize().scheme)
    sums = np.rint(scales / step) @ kept.codes.reshape(24, 32).T
    exact = sums * step * kept.scales.reshape(1, 24) + layer.bias.numpy()
    np.testing.assert_allclose(ours.call(x).numpy(), exact, rtol=1e-5, atol=1e-5)


def test_one_loud_channel_does_not_hide_that_the_others_are_lost() -> None:
    truth = torch.tensor([[100.0, -100.0], [1.0, 1.0], [1.0, -1.0]])
    kept = torch.tensor([[100.0, -100.0], [0.0, 0.0], [0.0, 0.0]])
    loud = KeptWeight("w", truth, kept, 0)
    assert weight_sqnr([loud]) == pytest.approx(10 * np.log10(20004 / 4))
    assert channel_sqnr([loud]) == 0.0
    assert channel_sqnr([replace(loud, axis=1)]) == pytest.approx(10 * np.log10(10002 / 2))


def test_a_wrong_zero_point_is_rejected_however_few_the_bits() -> None:
    policy = Quantize(bits=2, granularity="tensor", symmetric=False)
    task, done, ours = carried_out(nn.Linear(16, 8), policy, torch.randn(4, 16))
    schemes = {path: {**scheme, "symmetric": True} for path, scheme in done.approximation.weights.items()}
    wrong = replace(done, approximation=Approximation(schemes))
    checked, _ = approximation.verify_rewrite(task, ours, wrong, 0)
    assert "instead of" in checked.counterexample


def test_what_another_op_reads_stays_as_it_is() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 4))

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.weight) + self.weight.sum()

    _, done, _ = carried_out(Scaled(), Quantize(), torch.randn(2, 4))
    assert done.applied == ()
    assert list(done.refused.values()) == ["is read by aten.sum.default too"]


@pytest.mark.parametrize(
    ("knobs", "complaint"),
    [
        ({"training": True}, "after training only"),
        ({"number": "float"}, "whole numbers"),
        ({"engine": "torchao", "bits": 5}, "5-bit integer by channel"),
        (
            {"engine": "torchao", "bits": 4, "granularity": "group", "group": 48, "symmetric": False},
            "groups of 48",
        ),
    ],
)
def test_what_has_no_method_is_refused(knobs: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        Quantize(**knobs)


def with_torchao(module: nn.Module, x: Tensor, **knobs: Any) -> tuple[Task, Recipe, Compiled]:
    pytest.importorskip("torchao")
    task = Task(module.eval().requires_grad_(False), (x,), "cpu")
    recipe = Quantize(engine="torchao", **knobs).instead(task.graph)
    assert recipe is not None
    return task, recipe, backends.compile_task(recipe.backend, recipe.options, task)


def test_torchao_is_held_to_the_weights_that_it_kept() -> None:
    """Groups of 32 do not divide 48 inputs, and the kernel's 16 not 10 outputs: torchao leaves those layers
    alone.
    """
    module = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 64), nn.Linear(64, 10))
    task, recipe, made = with_torchao(
        module, torch.randn(4, 64), bits=4, granularity="group", group=32, symmetric=False
    )
    assert made.kept is not None
    assert [weight.path for weight in made.kept] == ["0.weight"]
    assert list(made.report["refused"]) == ["2.weight", "3.weight"]
    assert all(weight.complaint == "" for weight in made.kept)
    standing = replace(task, module=with_kept(module, made.kept))
    assert verify(standing, made, 0, recipe.bound, unfriendly(task.inputs, 0)).ok
    assert not verify(task, made, 0).ok
    tenth_too_large = replace(made.kept[0], values=made.kept[0].values * 1.1)
    assert "0.weight is kept at" in tenth_too_large.complaint
    checked, _ = approximation.verify_recipe(task, replace(made, kept=(tenth_too_large,)), recipe, 0)
    assert not checked.ok


def test_a_model_without_linear_modules_is_told_to_be_left_alone() -> None:
    _, _, made = with_torchao(nn.Conv2d(1, 2, 1), torch.randn(1, 1, 2, 2))
    assert (made.metrics["rewrites"], list(made.report["refused"])) == (0, ["model"])


def test_eight_bit_floats_are_unsupported_on_a_processor() -> None:
    with pytest.raises(Infeasible, match=r"unsupported here: .* needs an NVIDIA GPU"):
        with_torchao(nn.Linear(16, 16), torch.randn(2, 16), number="float", activations="dynamic")


def test_calibration_says_what_it_saw() -> None:
    knobs = {"activations": "static", "calibration": "percentile"}
    spec = {
        "family": "compilation",
        "policy": "quantize",
        "knobs": knobs,
        "hardware": "local",
        "mode": "measured",
    }
    found = run(load_spec({**spec, "workload": {"source": "zoo:mlp", "options": {"batch": 4}}}))
    assert found.status == "ok", found.reason
    calibration = found.plan["report"]["approximation"]["calibration"]
    assert (calibration["rule"], calibration["batches"]) == ("percentile", list(range(1000, 1032)))
    assert len(calibration["ranges"]) == 3
    figures = {name: row["value"] for name, row in found.metrics.items()}
    assert figures["model_bytes"] < figures["model_bytes_before"] / 3.9
    assert figures["weight_sqnr"] > 40 and figures["sqnr"] > 25
