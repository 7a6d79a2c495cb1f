"""A whole training step as a module: forward, backward and the update of the parameters (SGD).

What it writes to its parameters is its state, which the referee compares as it does running statistics.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from experiments.compilation.interface import Graph
from experiments.compilation.live.backends.base import Task
from experiments.compilation.live.model_state import HeldState, snapshot, tensors_of

#: Small enough that hundreds of steps on one batch, as they are timed, leave a model's numbers in range.
RATE = 1e-4


class TrainingStep(nn.Module):
    """Gives the loss of a batch, and moves the parameters against its gradients."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> Tensor:
        parameters = [one for one in self.model.parameters() if one.requires_grad]
        with torch.enable_grad():
            loss: Tensor = self.model(*inputs)
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                if gradient is not None:
                    parameter.sub_(gradient, alpha=RATE)
        return loss.detach()


@dataclass(frozen=True)
class StepTask(Task):
    """A task whose module is the training step of ``model``."""

    model: Task | None = None

    @property
    def whole(self) -> Graph:
        """The graph of the model's forward pass."""
        assert self.model is not None
        return self.model.whole


def with_update(task: Task) -> Task:
    """Return the step that ``task``, a model in training, is part of; it writes its parameters itself."""
    given = {one.name: getattr(task, one.name) for one in fields(Task)}
    return StepTask(**{**given, "module": TrainingStep(task.module), "training": False}, model=task)


@contextmanager
def keep_unchanged(module: nn.Module) -> Iterator[None]:
    """Leave parameters and buffers as they were, whatever the calls inside write."""
    tensors = tensors_of(module)
    held = HeldState(tensors, snapshot(tensors))
    try:
        yield
    finally:
        held.put_back()
