"""Casts where autocast makes them, judged against autocast; training with a scaled loss."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.compilation.interface import Draft, Ref, Rewritten
from experiments.compilation.live import approximation
from experiments.compilation.live.backends.base import Compiled, Task
from experiments.compilation.live.costs import Bench, MeasuredPrices
from experiments.compilation.live.lower import lower, parameters_of
from experiments.compilation.live.training_curve import losses
from experiments.compilation.live.types import Inference
from experiments.compilation.policies.mixed_precision import MixedPrecision
from tests.experiments.compilation.graphs import module_of

pytestmark = pytest.mark.torch


class Block(nn.Module):
    def __init__(self, training: bool = False) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 4)
        self.train(training)

    def forward(self, x: Tensor) -> Any:
        hidden = self.norm(F.gelu(self.first(x)))
        given = self.last(hidden).softmax(-1)
        return given.square().mean() if self.training else given


def carried_out(policy: MixedPrecision, x: Tensor) -> tuple[Task, Rewritten, Compiled]:
    task = Task(Block(policy.training), (x,), "cpu", training=policy.training)
    done = policy.rewrite(task.graph, Bench(Inference(), MeasuredPrices("cpu")))
    return task, done, built(task, done)


def built(task: Task, done: Rewritten) -> Compiled:
    module = lower(done.graph, task.origin, gradients=task.training)
    parameters = parameters_of(module, task.module) if task.training else None
    return Compiled(module, 0.0, 0.0, parameters=parameters)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_graph_is_autocast_bit_by_bit(dtype: str) -> None:
    x = torch.randn(8, 16)
    task, _, ours = carried_out(MixedPrecision(dtype=dtype, lists="cpu"), x)
    with torch.no_grad(), torch.autocast("cpu", getattr(torch, dtype)):
        theirs = task.module(x)
    with torch.no_grad():
        assert torch.equal(ours.call(x), theirs.float())


def test_softmax_and_norms_are_kept_whole_by_the_list_for_gpus_only() -> None:
    def types(lists: str) -> dict[str, str]:
        _, done, _ = carried_out(MixedPrecision(lists=lists), torch.randn(8, 16))
        return {node.target.split(".")[1]: node.dtype for node in done.graph.ops if not node.once}

    gpu, processor = types("cuda"), types("cpu")
    assert (gpu["linear"], gpu["layer_norm"], gpu["softmax"]) == ("bfloat16", "float32", "float32")
    assert (processor["linear"], processor["softmax"]) == ("bfloat16", "bfloat16")


@pytest.mark.parametrize("lists", ["cuda", "cpu"])
def test_a_loss_that_torch_divides_into_listed_ops_is_float32(lists: str) -> None:
    inputs = torch.randn(2, 4), torch.randn(3, 4), torch.tensor([0, 2])
    loss = module_of(lambda x, weight, target: F.cross_entropy(F.linear(x, weight), target))
    task = Task(loss, inputs, "cpu")
    done = MixedPrecision(lists=lists).rewrite(task.graph, Bench(Inference(), MeasuredPrices("cpu")))
    types = {node.target.split(".")[1]: node.dtype for node in done.graph.ops if not node.once}
    assert (types["linear"], types["cross_entropy_loss"]) == ("bfloat16", "float32")


def untrained(done: Rewritten) -> Rewritten:
    return replace(done, approximation=replace(done.approximation, training_steps=0))


def test_gradients_reach_the_float32_parameters() -> None:
    task, done, ours = carried_out(MixedPrecision(training=True), torch.randn(8, 16))
    checked, _ = approximation.verify_rewrite(task, ours, untrained(done), 0)
    assert checked.ok, checked.counterexample
    assert ours.parameters is not None
    ours.call(*task.inputs).backward()
    assert {value.grad.dtype for value in ours.parameters.values() if value.grad is not None} == {
        torch.float32
    }
    assert set(ours.parameters) == {name for name, _ in task.module.named_parameters()}


def test_a_slip_smaller_than_the_rounding_is_seen_without_the_casts() -> None:
    """A thousandth more is far within what bfloat16 may be off, and not within float32's."""
    task, done, _ = carried_out(MixedPrecision(training=True), torch.randn(8, 16))
    assert done.bound > 1e-3
    draft = Draft(done.graph, Inference())
    norm = Ref(next(node.name for node in done.graph.ops if "layer_norm" in node.target))
    draft.replace(norm, draft.op("aten.mul.Scalar", norm, 1.001))
    slipped = replace(untrained(done), graph=draft.finish())
    checked, _ = approximation.verify_rewrite(task, built(task, slipped), slipped, 0)
    assert "allowed difference" in checked.counterexample


def test_a_step_that_overflows_is_skipped_and_the_scale_halved() -> None:
    """A gradient of 6e33 times 65536 is beyond float32, times 32768 is not."""

    class Steep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            return self.weight * x

    module, scaler = Steep(), torch.amp.GradScaler("cpu")
    found, skipped = losses(module, [(torch.tensor(6e33),)] * 2, scaler)
    assert (found, skipped) == ([0.0, 0.0], 1)
    assert scaler.get_scale() == 32768.0
    assert module.weight.item() == pytest.approx(-0.01 * 6e33)
