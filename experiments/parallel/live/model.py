"""The model of a job on one device, the same in every process, and its optimizer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from experiments.core.errors import BadInput
from experiments.models.build import DTYPES, build, chosen
from experiments.workloads.model import ModelSource

#: torch's own optimizers with the rates of ``profiling.optimizers``.
OPTIMIZERS: dict[str, tuple[Callable[..., torch.optim.Optimizer], dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"lr": 0.01}),
    "momentum": (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9}),
    "adam": (torch.optim.Adam, {"lr": 1e-3}),
    "adamw": (torch.optim.AdamW, {"lr": 1e-3}),
}


@dataclass(frozen=True)
class Built:
    """``module(*batch)`` is the mean loss over the global batch, whose first dimension counts samples."""

    module: nn.Module
    batch: tuple[Tensor, ...]
    optimizer: str

    def micro_batch(self, index: int, samples: int) -> tuple[Tensor, ...]:
        return tuple(tensor[index * samples : (index + 1) * samples] for tensor in self.batch)

    def gradients(self) -> dict[str, Tensor]:
        return {name: p.grad for name, p in self.module.named_parameters() if p.grad is not None}


def built(source: ModelSource, seed: int, device: str) -> Built:
    """Weights and batch are functions of ``seed``. Among fake tensors the default dtype must be the job's."""
    options = chosen(source)
    if not options.training:
        raise BadInput("an inference step has no gradients", "options.training", "true")
    torch.manual_seed(seed)
    model = build(source)
    generator = torch.Generator().manual_seed(seed)
    dtype = DTYPES[options.dtype]
    batch = tuple(spec.sample(dtype, generator).to(device) for spec in model.batch(True))
    if any((p.device.type, p.dtype) != (torch.device(device).type, dtype) for p in model.module.parameters()):
        model.module.to(device, dtype)  # not among fake tensors, which cannot change their dtype in place
    return Built(model.module, batch, options.optimizer)
