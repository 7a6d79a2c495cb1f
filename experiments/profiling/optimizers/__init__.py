"""Optimizers as tensor operations, so that a whole step can be traced.

- ``optimizer``: what an optimizer is; ``kernels``: torch's operations with a number of the step.
- ``elementwise``: SGD, momentum, Adam, AdamW; ``quantized``: AdamW with moments of 8 and 4 bits;
  ``paged``: moments on the host.
- ``adafactor``, ``muon``, ``galore``: state that depends on a parameter's shape.
- ``matrices``: which parameters ``muon`` and ``galore`` treat as matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import torch
from torch import Tensor

from experiments.core.precision import MIXED_BOTH_GRADS, WITH_FP32_GRADS, WITH_MASTER
from experiments.profiling.optimizers import adafactor, elementwise, galore, muon, paged, quantized
from experiments.profiling.optimizers.optimizer import Optimizer

#: State tensors that come of the precision, not of the optimizer.
MASTER, GRADIENT, BUCKET = "master", "gradient", "bucket"
#: Rates and constants are torch.optim's defaults (SGD: 0.01, momentum 0.9).
OPTIMIZERS: Mapping[str, Callable[[int], Optimizer]] = {
    "sgd": lambda rank: elementwise.sgd(0.01),
    "momentum": lambda rank: elementwise.momentum(0.01, 0.9),
    "adam": lambda rank: elementwise.adam("adam", 1e-3, 0.0),
    "adamw": lambda rank: elementwise.adam("adamw", 1e-3, 0.01),
    "adamw8bit": lambda rank: quantized.adamw("adamw8bit", 8),
    "adamw4bit": lambda rank: quantized.adamw("adamw4bit", 4),
    "paged_adamw": lambda rank: paged.adamw("paged_adamw"),
    "paged_adamw8bit": lambda rank: paged.adamw8bit("paged_adamw8bit"),
    "adafactor": lambda rank: adafactor.adafactor(),
    "muon": lambda rank: muon.muon(),
    "galore_adamw": galore.galore_adamw,
}


def initial_state(
    optimizer: Optimizer,
    parameters: Mapping[str, Tensor],
    weights: Mapping[str, Tensor],
    precision: str,
    hidden: Collection[str] = (),
) -> dict[str, Tensor]:
    """Return the optimizer's state by name: ``parameter.slot``, then the shared scalars.

    ``master``, for a parameter of 16 bits, starts as the model's own ``weights``, and ``gradient`` is the
    buffer that float32 gradients are added up in, ``bucket`` that of 16-bit ones before; ``hidden``
    names matrices between embeddings and output. On the parameters' device.
    """
    state: dict[str, Tensor] = {}
    for name, value in parameters.items():
        mixed = precision in WITH_MASTER and value.element_size() < 4
        kept = value.float() if mixed else value
        slots = optimizer.initial(kept, name in hidden)
        state |= {f"{name}.{slot}": first for slot, first in slots.items()}
        if mixed:
            state[f"{name}.{MASTER}"] = weights[name].detach().to(value.device, torch.float32, copy=True)
        if precision in WITH_FP32_GRADS:
            state[f"{name}.{GRADIENT}"] = torch.zeros_like(kept)
        if precision == MIXED_BOTH_GRADS:
            state[f"{name}.{BUCKET}"] = torch.zeros_like(value)
    device = next(iter(parameters.values())).device
    return state | {name: torch.zeros((), dtype=torch.float32, device=device) for name in optimizer.shared}
