"""A whole training step as a module: its update is state, which the referee compares."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from experiments.compilation.live.backends.base import Compiled, Task
from experiments.compilation.live.backends.torch_compile import build
from experiments.compilation.live.training_step import RATE, TrainingStep, keep_unchanged, with_update
from experiments.compilation.live.verify import verify
from experiments.core.errors import BadInput

pytestmark = pytest.mark.torch


class Loss(nn.Module):
    """The mean square of one layer: of weight 3 on 2 it is 36, with gradient 24."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1, bias=False)
        nn.init.constant_(self.layer.weight, 3.0)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x).square().mean()
        return found


def step_task() -> Task:
    return with_update(Task(Loss(), (torch.tensor([[2.0]]),), "cpu", training=True))


def test_a_step_gives_the_loss_and_moves_the_weight_against_its_gradient() -> None:
    task = step_task()
    assert isinstance(task.module, TrainingStep)
    with torch.no_grad():
        assert task.module(*task.inputs).item() == 36.0
    assert task.module.model.layer.weight.item() == pytest.approx(3.0 - 24.0 * RATE)  # type: ignore[union-attr,operator]
    assert not task.training, "the step writes its weights itself; nobody calls backward on it"
    assert len(task.whole.computing) == len(step_task().whole.computing) > 0


@pytest.mark.parametrize(("rate", "right"), [(1.0, True), (0.0, False), (1.5, False)])
def test_the_referee_sees_an_update_that_is_dropped_or_too_large(rate: float, right: bool) -> None:
    task = step_task()
    other = copy.deepcopy(task.module)

    def candidate(x: Tensor) -> Tensor:
        """The step, and then some of its update more or less."""
        weight = other.model.layer.weight  # type: ignore[union-attr]
        before = weight.detach().clone()  # type: ignore[operator,union-attr]
        loss: Tensor = other(x)
        with torch.no_grad():
            weight.copy_(before + rate * (weight - before))  # type: ignore[operator,union-attr]
        return loss

    class Candidate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = other.model

        def forward(self, x: Tensor) -> Tensor:
            return candidate(x)

    found = verify(task, Compiled(Candidate(), 0.0, 0.0), 0)
    assert found.ok == right, found.counterexample
    if not right:
        assert "model.layer.weight afterwards" in found.counterexample


def test_what_is_written_inside_is_put_back() -> None:
    task = step_task()
    with keep_unchanged(task.module), torch.no_grad():
        task.module(*task.inputs)
    assert task.module.model.layer.weight.item() == 3.0  # type: ignore[union-attr,operator]


def test_a_step_whose_weights_change_cannot_be_frozen() -> None:
    with pytest.raises(BadInput, match="makes constants of parameters"):
        build(step_task(), {"freezing": True})
