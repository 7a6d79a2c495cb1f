"""Optimizers as in-place functions of tensors, so that a whole step can be traced.

``torch.optim`` reads its step count with ``.item()``, which a trace would freeze; here the count is a tensor
of the optimizer state, as in torch's own ``capturable`` variants, and the same operations follow parameter by
parameter (torch's single-tensor form, its default on a CPU). Two temporaries of a parameter's size live at
once in Adam.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Optimizer:
    """``slots`` are state tensors shaped like each parameter; ``shared`` scalars are float32 of shape [].

    ``prepare(shared)`` runs once a step and ``update(parameter, gradient, slots, prepared)`` for each
    parameter.
    """

    name: str
    slots: tuple[str, ...]
    shared: tuple[str, ...]
    prepare: Callable[[State], State]
    update: Callable[[Tensor, Tensor, State, State], None]


def _nothing(shared: State) -> State:
    return shared


def _sgd(rate: float) -> Optimizer:
    def update(parameter: Tensor, gradient: Tensor, slots: State, prepared: State) -> None:
        parameter.add_(gradient, alpha=-rate)

    return Optimizer("sgd", (), (), _nothing, update)


def _momentum(rate: float, momentum: float) -> Optimizer:
    """A buffer that starts at zero gives torch's first step too: 0 * momentum + gradient."""

    def update(parameter: Tensor, gradient: Tensor, slots: State, prepared: State) -> None:
        buffer = slots["momentum"]
        buffer.mul_(momentum).add_(gradient)
        parameter.add_(buffer, alpha=-rate)

    return Optimizer("momentum", ("momentum",), (), _nothing, update)


def _adam(name: str, rate: float, decay: float, beta1: float, beta2: float, eps: float) -> Optimizer:
    """Kingma & Ba 2015, algorithm 1; ``decay`` as in Loshchilov & Hutter 2019, algorithm 2.

    ``scale`` and ``shift`` fold the bias corrections and the rate into the denominator, so that both stay
    tensors.
    """

    def prepare(shared: State) -> State:
        step = shared["step"].add_(1)
        negative_rate = ((1 - beta1**step) / rate).reciprocal_().neg_()
        scale = (1 - beta2**step).sqrt_() * negative_rate
        return {"scale": scale, "shift": eps / negative_rate}

    def update(parameter: Tensor, gradient: Tensor, slots: State, prepared: State) -> None:
        mean, square = slots["mean"], slots["square"]
        if decay:
            parameter.mul_(1 - rate * decay)
        mean.lerp_(gradient, 1 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        denominator = (square.sqrt() / prepared["scale"]).add_(prepared["shift"])
        parameter.addcdiv_(mean, denominator)

    return Optimizer(name, ("mean", "square"), ("step",), prepare, update)


#: Rates and constants are torch.optim's defaults (SGD: 0.01, momentum 0.9).
OPTIMIZERS: Mapping[str, Optimizer] = {
    "sgd": _sgd(0.01),
    "momentum": _momentum(0.01, 0.9),
    "adam": _adam("adam", 1e-3, 0.0, 0.9, 0.999, 1e-8),
    "adamw": _adam("adamw", 1e-3, 0.01, 0.9, 0.999, 1e-8),
}


def initial_state(optimizer: Optimizer, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Zeroed state by name: ``parameter.slot``, then the shared scalars; on the parameters'
    device and dtype.
    """
    state = {
        f"{name}.{slot}": torch.zeros_like(value)
        for name, value in parameters.items()
        for slot in optimizer.slots
    }
    device = next(iter(parameters.values())).device
    return state | {name: torch.zeros((), dtype=torch.float32, device=device) for name in optimizer.shared}
