"""DLRM (Naumov et al. 2019): embedding tables, a bottom and a top perceptron, pairwise dot
products between.
"""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.models.model import Geometry, InputSpec, Model, Objective

DENSE = 13


def _perceptron(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Dlrm(nn.Module):
    """[batch, 13] numbers and [batch, tables] categories (one of each) to click logits [batch]."""

    def __init__(self, tables: int, rows: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.bottom = _perceptron(DENSE, 512, 256, width)
        vectors = tables + 1
        self.top = _perceptron(width + vectors * (vectors - 1) // 2, 512, 256, 1)

    def forward(self, dense: Tensor, categories: Tensor) -> Tensor:
        numbers = F.relu(self.bottom(dense))
        looked_up = [table(categories[:, index]) for index, table in enumerate(self.tables)]
        vectors = torch.stack([numbers, *looked_up], 1)
        products = vectors @ vectors.transpose(1, 2)
        row, column = torch.tril_indices(len(looked_up) + 1, len(looked_up) + 1, -1, device=dense.device)
        out: Tensor = self.top(torch.cat((numbers, products[:, row, column]), 1))
        return out.squeeze(1)


def dlrm(geometry: Geometry, tables: int, rows: int, width: int) -> Model:
    batch = (
        InputSpec("dense", (geometry.batch, DENSE)),
        InputSpec("categories", (geometry.batch, tables), rows),
        InputSpec("target", (geometry.batch,)),
    )
    return Model(Objective(Dlrm(tables, rows, width), _click_loss), batch)


def _click_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Cross entropy against a target squeezed to 0..1 (the batch draws real numbers)."""
    return F.binary_cross_entropy_with_logits(logits, target.sigmoid())
