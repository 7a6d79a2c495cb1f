"""GaLore (Zhao et al., ICML 2024): AdamW on the gradient of a matrix, projected to a low rank.

The basis lies along the shorter side, whose singular vectors of a gradient it holds: with as many rows as
columns or more the gradient is multiplied with it from the right, else from the left. It is found anew every
200 steps, outside the step that is captured; here a step begins with unit vectors. Of rank r it has r values
for each of the shorter side, and the moments r for each of the longer one. Matrices between the embeddings
and the output are projected, the rest has AdamW. Constants are those of the authors' ``GaLoreAdamW``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from experiments.profiling.optimizers import kernels
from experiments.profiling.optimizers.elementwise import BETA1, BETA2
from experiments.profiling.optimizers.optimizer import Optimizer, State

RATE, EPS, SCALE = 1e-3, 1e-6, 0.25


def galore_adamw(rank: int) -> Optimizer:
    """AdamW in a space of ``rank``, or of the matrix's shorter side where that is less."""

    def initial(parameter: Tensor, hidden: bool) -> dict[str, Tensor]:
        if not hidden:
            return {slot: torch.zeros_like(parameter) for slot in ("mean", "square")}
        rows, columns = parameter.shape
        few = min(rank, rows, columns)
        tall = rows >= columns
        sides, shape = ((few, columns), (rows, few)) if tall else ((rows, few), (few, columns))
        basis = torch.eye(*sides, dtype=parameter.dtype, device=parameter.device)
        moments = {slot: parameter.new_zeros(shape) for slot in ("mean", "square")}
        return {"basis": basis, **moments}

    return Optimizer("galore_adamw", initial, ("step",), _prepare, _update)


def _prepare(shared: State) -> State:
    step = shared["step"].add_(1).double()
    return {"rate": -RATE * (1 - BETA2**step).sqrt() / (1 - BETA1**step)}


def _update(parameter: Tensor, gradient: Tensor, slots: State, prepared: State) -> None:
    basis = slots.get("basis")
    slope = gradient if basis is None else _project(gradient, basis)
    mean, square = slots["mean"], slots["square"]
    mean.mul_(BETA1).add_(slope, alpha=1.0 - BETA1)
    square.mul_(BETA2).addcmul_(slope, slope, value=1.0 - BETA2)
    update = mean / square.sqrt().add_(EPS)
    if basis is not None:
        update = _project_back(update, basis, parameter) * SCALE
    kernels.add_scaled_(parameter, update, prepared["rate"])


def _project(gradient: Tensor, basis: Tensor) -> Tensor:
    tall = gradient.shape[0] >= gradient.shape[1]
    return gradient @ basis.t() if tall else basis.t() @ gradient


def _project_back(update: Tensor, basis: Tensor, parameter: Tensor) -> Tensor:
    return update @ basis if parameter.shape[0] >= parameter.shape[1] else basis @ update
