"""One process' copy of a job's model, and its place among the processes of the gang."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.utils import vector_to_parameters

from experiments.cluster.live.models import TrainingTask, loss_of

LEARNING_RATE, MOMENTUM = 0.01, 0.9


@dataclass
class Replica:
    """``rank`` of ``ranks`` that train ``task`` on a ``device`` each."""

    task: TrainingTask
    device: str
    rank: int
    ranks: int

    def __post_init__(self) -> None:
        self.model = self.task.model.to(self.device)
        parameters = self.model.parameters()
        self.optimizer = torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=MOMENTUM)

    def differentiate(self, inputs: Tensor, targets: Tensor, batch: int) -> float:
        """Compute gradients anew: those of these samples' share in the mean loss over ``batch``."""
        inputs, targets = inputs.to(self.device), targets.to(self.device)
        self.optimizer.zero_grad(set_to_none=True)
        loss = loss_of(self.model(inputs), targets, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach())

    @property
    def size(self) -> int:
        """Parameters of the model."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def gradients(self, row: Tensor | None = None) -> Tensor:
        """Return all gradients in one row, in the one that is given if any."""
        return torch.cat([gradient.reshape(-1) for gradient in self._gradients()], out=row)

    def add_up(self, values: Tensor) -> Tensor:
        """Return the sum over all processes, in one message."""
        if self.ranks > 1:
            dist.all_reduce(values)
        return values

    def update(self, gradients: Tensor | None = None, gain: float = 1.0) -> None:
        """Let the optimizer make a step, by these gradients or by those computed last."""
        if gradients is not None:
            with torch.no_grad():
                vector_to_parameters(gradients, self._gradients())
        for group in self.optimizer.param_groups:
            group["lr"] = LEARNING_RATE * gain
        self.optimizer.step()
        if self.device == "cuda":
            torch.cuda.synchronize()

    def _gradients(self) -> list[Tensor]:
        return [p.grad for p in self.model.parameters() if p.grad is not None]
