"""What a builder gives: a torch module that maps a batch to its loss, and what its batch looks like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Geometry:
    """Sizes of one step.

    ``sequence`` and ``image`` are 0 where the model has none, ``images`` are those of a sample; ``document``
    are the tokens of each of a sample's documents, 0 where it is one.
    """

    batch: int
    sequence: int = 0
    image: int = 0
    images: int = 1
    document: int = 0


@dataclass(frozen=True)
class InputSpec:
    """One tensor of the batch: real numbers from N(0, 1), or indices.

    Indices go from ``low`` to ``high - 1`` where ``high`` > 0. Samples lie along the dimension ``samples``.
    """

    name: str
    shape: tuple[int, ...]
    high: int = 0
    low: int = 0
    samples: int = 0

    def sample(self, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
        if self.high:
            return torch.randint(self.low, self.high, self.shape, generator=generator)
        return torch.randn(self.shape, generator=generator).to(dtype)

    def empty(self, dtype: torch.dtype, device: str) -> Tensor:
        return torch.empty(self.shape, dtype=torch.int64 if self.high else dtype, device=device)


@dataclass(frozen=True)
class Model:
    """``module(*batch)`` is the loss in training mode and the output in evaluation mode (targets left out).

    ``inputs`` describes the whole batch, the last ``targets`` of which only the loss needs. ``samples`` and
    ``tokens`` count the batch.
    """

    module: nn.Module
    inputs: tuple[InputSpec, ...]
    targets: int = 1
    facts: dict[str, Any] = field(default_factory=dict)

    def batch(self, training: bool) -> tuple[InputSpec, ...]:
        return self.inputs if training else self.inputs[: len(self.inputs) - self.targets]


class Objective(nn.Module):
    """A body and its loss: ``loss(body(*inputs), target)`` in training, ``body(*inputs)`` otherwise.

    Where ``outputs`` is a list, what the body returns in training is put there, for a caller that holds on to
    it. ``begin_backward`` is called, if there is one, where a loss begins to make gradients on its way.
    """

    def __init__(self, body: nn.Module, loss: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.body = body
        self._loss = loss
        self.outputs: list[Any] | None = None
        self.begin_backward: Callable[[], None] | None = None

    def forward(self, *batch: Tensor) -> Any:
        if not self.training:
            return self.body(*batch)
        *inputs, target = batch
        output = self.body(*inputs)
        if self.outputs is not None:
            self.outputs.append(output)
        return self._loss(output, target)

    def loss(self, output: Any, target: Tensor) -> Tensor:
        """Of what the body gave."""
        return self._loss(output, target)


def classification(output: Tensor, target: Tensor) -> Tensor:
    """Mean cross entropy over all leading dimensions; ``output`` [..., classes], ``target`` [...]."""
    return F.cross_entropy(output.reshape(-1, output.shape[-1]), target.reshape(-1))
