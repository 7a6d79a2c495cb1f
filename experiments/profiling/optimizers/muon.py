"""Muon (Jordan et al., 2024): the momentum of a matrix, made orthogonal by a Newton-Schulz iteration.

``torch.optim.Muon`` itself carries out the update of matrices between the embeddings and the output; all
other parameters have AdamW, as its authors advise.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.optim._muon import DEFAULT_A, DEFAULT_B, DEFAULT_C, DEFAULT_NS_STEPS, EPS
from torch.optim._muon import muon as torch_muon

from experiments.profiling.optimizers import elementwise
from experiments.profiling.optimizers.optimizer import Optimizer, State


def muon() -> Optimizer:
    """Muon for the hidden matrices, AdamW for the rest, each with torch's defaults."""
    others = elementwise.adam("muon", 1e-3, 0.01)

    def initial(parameter: Tensor, hidden: bool) -> dict[str, Tensor]:
        if hidden:
            return {"momentum": torch.zeros_like(parameter)}
        return others.initial(parameter, hidden)

    def update(parameter: Tensor, gradient: Tensor, slots: State, prepared: State) -> None:
        if "momentum" in slots:
            _orthogonal_update(parameter, gradient, slots["momentum"])
        else:
            others.update(parameter, gradient, slots, prepared)

    return replace(others, initial=initial, update=update, together={})


def _orthogonal_update(parameter: Tensor, gradient: Tensor, momentum: Tensor) -> None:
    torch_muon(
        [parameter],
        [gradient],
        [momentum],
        lr=1e-3,
        weight_decay=0.1,
        momentum=0.95,
        nesterov=True,
        ns_coefficients=(DEFAULT_A, DEFAULT_B, DEFAULT_C),
        ns_steps=DEFAULT_NS_STEPS,
        eps=EPS,
        adjust_lr_fn=None,
        has_complex=False,
    )
