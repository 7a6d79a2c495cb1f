"""What training keeps for each parameter, by precision: captured steps, closed forms and torch agree."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from experiments.core.options import WorkloadOptions  # noqa: E402
from experiments.core.precision import PRECISIONS, state_bytes  # noqa: E402
from experiments.models.build import build  # noqa: E402
from experiments.workloads.model import ModelSource  # noqa: E402
from tests.experiments.captures import capture, trace  # noqa: E402
from tests.experiments.configs import NO_DROPOUT  # noqa: E402

pytestmark = pytest.mark.torch

GPT = {
    "model_type": "gpt2",
    "n_layer": 2,
    "n_embd": 32,
    "n_head": 4,
    "n_positions": 16,
    "vocab_size": 50,
    **NO_DROPOUT,
}


def source(**options: Any) -> ModelSource:
    return ModelSource("gpt", config=GPT, options=WorkloadOptions(batch=2, sequence=16, **options))


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "adamw"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_captured_step_keeps_what_the_closed_form_says(precision: str, optimizer: str) -> None:
    step = capture(source(precision=precision, optimizer=optimizer))
    dtype = "float32" if precision == "fp32" else "bfloat16"
    assert step.facts["dtype"] == dtype and step.facts["precision"] == precision
    each = state_bytes(dtype, optimizer, precision).total
    assert step.state_bytes == step.facts["parameters"] * each


def test_sixteen_bits_are_mixed_unless_told() -> None:
    assert capture(source(dtype="bfloat16")).facts["precision"] == "bf16-mixed"
    assert capture(source()).facts["precision"] == "fp32"


def test_buffers_of_float32_gradients_are_there_from_the_start() -> None:
    """16-bit gradients come as the backward pass makes them; float32 buffers are held all along."""
    least = [
        capture(source(precision=precision)).live_bytes[0]
        for precision in ("bf16-mixed", "bf16-mixed-fp32-grads")
    ]
    parameters = capture(source()).facts["parameters"]
    assert least[1] - least[0] == 4 * parameters


@pytest.mark.parametrize("micro_batches", [1, 2])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_graph_replays_the_eager_step(precision: str, micro_batches: int) -> None:
    asked = dataclasses.replace(source(precision=precision), micro_batches=micro_batches)
    traced = trace(asked)
    ours, eager = traced.make_inputs(), traced.make_inputs()
    for _ in range(3):
        with torch.no_grad():
            loss = traced.graph_module(*ours)
        assert torch.equal(loss, traced.eager(*eager))
    assert all(torch.equal(one, other) for one, other in zip(ours, eager, strict=True))


def by_torch(asked: ModelSource, steps: int, make: Any) -> dict[str, Tensor]:
    """Weights after ``steps`` updates by ``torch.optim`` and autograd alone."""
    torch.manual_seed(0)
    model = build(asked)
    generator = torch.Generator().manual_seed(0)
    batch = [spec.sample(torch.float32, generator) for spec in model.batch(training=True)]
    optimizer = make(model.module.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        model.module(*batch).backward()
        optimizer.step()
    return dict(model.module.named_parameters())


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("sgd", lambda parameters: torch.optim.SGD(parameters, lr=0.01)),
        ("momentum", lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9)),
        ("adam", torch.optim.Adam),
        ("adamw", lambda parameters: torch.optim.AdamW(parameters, weight_decay=0.01)),
    ],
)
def test_updates_are_torch_s_own_bit_for_bit(name: str, make: Any) -> None:
    asked = source(optimizer=name)
    traced = trace(asked)
    inputs = traced.make_inputs()
    with torch.no_grad():
        for _ in range(12):
            traced.graph_module(*inputs)
    expected = by_torch(asked, 12, make)
    ours = dict(zip((leaf.name for leaf in traced.leaves), inputs, strict=True))
    assert all(torch.equal(ours[name], value) for name, value in expected.items())


def test_a_mixed_update_is_float32_s_rounded() -> None:
    """SGD on float32 master weights with the gradients of the 16-bit model, by hand."""
    asked = source(precision="bf16-mixed", optimizer="sgd")
    traced = trace(asked)
    inputs = traced.make_inputs()
    names = [leaf.name for leaf in traced.leaves]
    before = {name: value.clone() for name, value in zip(names, inputs, strict=True)}
    module = build(asked).module.to(torch.bfloat16)
    parameters = dict(module.named_parameters())
    with torch.no_grad():
        for name, value in parameters.items():
            value.copy_(before[name])
    module(*inputs[-len(build(asked).inputs) :]).backward()
    with torch.no_grad():
        traced.graph_module(*inputs)
    after = dict(zip(names, inputs, strict=True))
    for name, value in parameters.items():
        assert value.grad is not None
        master = before[f"{name}.master"].add(value.grad.float(), alpha=-0.01)
        assert torch.equal(after[f"{name}.master"], master)
        assert torch.equal(after[name], master.bfloat16())
