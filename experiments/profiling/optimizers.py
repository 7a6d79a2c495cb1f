"""Optimizers as in-place functions of tensors, so that a whole step can be traced.

``torch.optim`` reads its step count with ``.item()``, which a trace would freeze; here the count is a tensor
of the optimizer state, and what follows from it are float64 scalars. The same operations follow parameter by
parameter (torch's single-tensor form, its default on a CPU): updates in float32 and float64 are
``torch.optim``'s bit for bit on a CPU. Moments of 16 bits (``bf16-pure``) are updated by torch's capturable
form, whose rounding differs. Two temporaries of a parameter's size live at once in Adam.

A float32 master copy, where the precision has one, is what the optimizer updates; the parameter is rounded
from it. ``torch.optim`` scales the mean inside its last operation, by a Python number; here that is an
operation of its own, into a temporary that is no longer needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.core.precision import MIXED_FP32_GRADS, WITH_MASTER

State = Mapping[str, Tensor]

#: State tensors that come of the precision, not of the optimizer.
MASTER, GRADIENT = "master", "gradient"


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
    """Kingma & Ba 2015, algorithm 1; ``decay`` as in Loshchilov & Hutter 2019, algorithm 2."""

    def prepare(shared: State) -> State:
        step = shared["step"].add_(1).double()
        return {"rate": -rate / (1 - beta1**step), "root": (1 - beta2**step).sqrt()}

    def update(parameter: Tensor, gradient: Tensor, slots: State, prepared: State) -> None:
        mean, square = slots["mean"], slots["square"]
        if decay:
            parameter.mul_(1 - rate * decay)
        mean.lerp_(gradient, 1 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        if parameter.element_size() < 4:
            scale = prepared["root"] * prepared["rate"]
            denominator = (square.sqrt() / scale).add_(eps / prepared["rate"])
            parameter.addcdiv_(mean, denominator)
        else:
            scratch = square.sqrt()
            denominator = (scratch / prepared["root"]).add_(eps)
            parameter.addcdiv_(torch.mul(mean, prepared["rate"], out=scratch), denominator)

    return Optimizer(name, ("mean", "square"), ("step",), prepare, update)


#: Rates and constants are torch.optim's defaults (SGD: 0.01, momentum 0.9).
OPTIMIZERS: Mapping[str, Optimizer] = {
    "sgd": _sgd(0.01),
    "momentum": _momentum(0.01, 0.9),
    "adam": _adam("adam", 1e-3, 0.0, 0.9, 0.999, 1e-8),
    "adamw": _adam("adamw", 1e-3, 0.01, 0.9, 0.999, 1e-8),
}


def initial_state(
    optimizer: Optimizer, parameters: Mapping[str, Tensor], weights: Mapping[str, Tensor], precision: str
) -> dict[str, Tensor]:
    """Return the optimizer's state by name: ``parameter.slot``, then the shared scalars.

    Slots are zeros; ``master``, for a parameter of 16 bits, starts as the model's own ``weights``, and
    ``gradient`` is the buffer that float32 gradients are added up in. On the parameters' device.
    """
    state: dict[str, Tensor] = {}
    for name, value in parameters.items():
        mixed = precision in WITH_MASTER and value.element_size() < 4
        kept = value.float() if mixed else value
        state |= {f"{name}.{slot}": torch.zeros_like(kept) for slot in optimizer.slots}
        if mixed:
            state[f"{name}.{MASTER}"] = weights[name].detach().to(value.device, torch.float32, copy=True)
        if precision == MIXED_FP32_GRADS:
            state[f"{name}.{GRADIENT}"] = torch.zeros_like(kept)
    device = next(iter(parameters.values())).device
    return state | {name: torch.zeros((), dtype=torch.float32, device=device) for name in optimizer.shared}
