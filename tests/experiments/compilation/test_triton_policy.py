"""Which op goes to which Triton kernel, and a module carried out by them under the interpreter."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.compilation.interface import Recipe
from experiments.compilation.live import backends
from experiments.compilation.live.backends.base import Task
from experiments.compilation.live.verify import verify
from experiments.compilation.policies.triton import Triton
from experiments.core.errors import BadInput
from tests.experiments.compilation.graphs import graph, module_of, node

pytestmark = pytest.mark.torch


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(12), nn.Linear(12, 24), nn.Linear(24, 12)

    def forward(self, x: Tensor) -> Any:
        return (x + self.down(F.gelu(self.up(self.norm(x))))).softmax(-1)


def asked(task: Task, policy: Triton | None = None) -> Recipe:
    return (policy or Triton()).recipe(task.graph)


def test_a_block_runs_on_five_kernels_and_is_right() -> None:
    pytest.importorskip("triton")
    task = Task(Block().eval(), (torch.randn(5, 12),), "cpu")
    recipe = asked(task)
    assert sorted(recipe.options["kernels"].values()) == [
        "add", "layer_norm", "linear", "linear_gelu", "softmax",
    ]  # fmt: skip
    made = backends.compile_task(recipe.backend, recipe.options, task)
    assert verify(task, made, 0).ok
    assert (made.metrics["rewrites"], made.untimed != "") == (5, True)


def test_a_gelu_that_does_not_alone_read_its_linear_layer_stays_apart() -> None:
    def twice(x: Tensor, weight: Tensor) -> Tensor:
        hidden = F.linear(x, weight)
        return F.gelu(hidden) + hidden

    task = Task(module_of(twice), (torch.randn(2, 3), torch.randn(4, 3)), "cpu")
    assert sorted(asked(task).options["kernels"].values()) == ["add", "bias_gelu", "linear"]


def test_what_no_kernel_computes_is_named() -> None:
    def odd(x: Tensor) -> Tensor:
        return F.gelu(x, approximate="tanh") + x.softmax(0) + 1 + x.double().softmax(-1)

    refused = asked(Task(module_of(odd), (torch.randn(2, 3),), "cpu")).options["refused"]
    assert refused["gelu"] == "is the tanh form of GELU"
    assert refused["softmax"] == "is over axis 0"
    assert refused["softmax_1"] == "reads float64"
    assert refused["add_1"] == "adds tensors of two shapes, or one scaled"


def test_knobs_keep_ops_with_torch_and_training_is_refused() -> None:
    small = graph(node("a", "aten.gelu.default", "x"), node("b", "aten.softmax.int", "a"), reads=("b",))
    assert Triton(activations=False).recipe(small).options["kernels"] == {}
    with pytest.raises(BadInput, match="no backward pass"):
        Triton(training=True).recipe(small)
