"""Adafactor (Shazeer & Stern, ICML 2018): of a matrix, row and column means of squared gradients.

``torch.optim.Adafactor`` bit for bit on a CPU, with its defaults and its single-tensor form; the numbers that
it reads with ``.item()`` are tensors here.
"""

from __future__ import annotations

import torch
from torch import Tensor

from experiments.profiling.optimizers import kernels
from experiments.profiling.optimizers.optimizer import Optimizer, State

#: Torch's defaults: rate, exponent of the decay, least step relative to the weights, clipping threshold.
RATE, DECAY_EXPONENT, LEAST_SCALE, THRESHOLD = 1e-2, -0.8, 1e-3, 1.0


def adafactor() -> Optimizer:
    """Adafactor without momentum, as torch has it."""
    return Optimizer("adafactor", _initial, ("step",), _prepare, _update)


def _initial(parameter: Tensor, hidden: bool) -> dict[str, Tensor]:
    if parameter.dim() <= 1:
        return {"variance": torch.zeros_like(parameter)}
    rows, columns = list(parameter.shape), list(parameter.shape)
    rows[-1] = columns[-2] = 1
    return {"rows": parameter.new_zeros(rows), "columns": parameter.new_zeros(columns)}


def _prepare(shared: State) -> State:
    step = shared["step"].add_(1).double()
    return {"weight": step**DECAY_EXPONENT, "rate": (1 / step**0.5).clamp(max=RATE)}


def _update(parameter: Tensor, gradient: Tensor, slots: State, prepared: State) -> None:
    tiny = torch.finfo(parameter.dtype).eps
    scale = _root_mean_square(parameter).clamp(min=LEAST_SCALE) * prepared["rate"]
    variance = (
        _update_from_factors(gradient, slots["rows"], slots["columns"], prepared["weight"], tiny)
        if gradient.dim() > 1
        else _whole(gradient, slots["variance"], prepared["weight"])
    )
    update = variance.clamp_(min=tiny * tiny).rsqrt_()
    update.mul_(gradient)
    clipped = (_root_mean_square(update) / THRESHOLD).clamp(min=1.0)
    kernels.add_scaled_(parameter, update, -scale / clipped)


def _root_mean_square(value: Tensor) -> Tensor:
    root: float = value.numel() ** 0.5
    norm: Tensor = value.norm(2)
    return norm.double() / root


def _update_from_factors(
    gradient: Tensor, rows: Tensor, columns: Tensor, weight: Tensor, tiny: float
) -> Tensor:
    """The estimate from the means of rows and columns; squares of the gradient are never whole."""
    for means, side in ((rows, -1), (columns, -2)):
        found = torch.norm(gradient, dim=side, keepdim=True).square_().div_(gradient.size(side))
        kernels.lerp_(means, found, weight)
    return (rows @ columns).div_(rows.mean(dim=-2, keepdim=True).clamp_(min=tiny))


def _whole(gradient: Tensor, variance: Tensor, weight: Tensor) -> Tensor:
    kernels.lerp_(variance, gradient * gradient, weight)
    return variance.clone()
