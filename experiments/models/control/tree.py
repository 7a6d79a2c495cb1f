"""Recursive autoencoder (Socher et al., EMNLP 2011): a phrase is the encoding of its two parts, down to the
words.

Width 512 as in Cocktailer's artifact (OSDI 2023). The tree is data that the module holds: balanced, or a
chain to the left, the two shapes between which parse trees lie. ``batch`` trees of the same shape are
computed at once.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from experiments.models.control.constructs import Recursion
from experiments.models.model import Geometry, InputSpec, Model, Objective, classification

ROOT = 0


class Encode(nn.Module):
    """[batch, width] twice to once."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.encoder = nn.Linear(2 * width, width)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return torch.tanh(self.encoder(torch.cat((left, right), -1)))


def balanced_children(leaves: int) -> tuple[list[int], list[int]]:
    """Children of every node of a heap: node i has 2i+1 and 2i+2."""
    inner = leaves - 1
    left = [2 * node + 1 for node in range(inner)] + [-1] * leaves
    return left, [child + 1 if child >= 0 else -1 for child in left]


def chain(leaves: int) -> tuple[list[int], list[int]]:
    """Every inner node has the next inner node on its left and a leaf on its right."""
    inner = leaves - 1
    left = [node + 1 for node in range(inner)] + [-1] * leaves
    return left, [inner + 1 + node for node in range(inner)] + [-1] * leaves


class Rae(nn.Module):
    """``features`` [nodes, batch, width] (leaves' rows are read) to the root's value [batch, width]."""

    def __init__(self, width: int, left: list[int], right: list[int]) -> None:
        super().__init__()
        self.recursion = Recursion(nn.Identity(), Encode(width), left, right)

    def forward(self, features: Tensor) -> Tensor:
        value: Tensor = self.recursion(ROOT, features)
        return value


def rae(geometry: Geometry, width: int, balance: int) -> Model:
    """A tree over ``sequence`` words, balanced or a chain."""
    left, right = (balanced_children if balance else chain)(geometry.sequence)
    features = InputSpec("features", (len(left), geometry.batch, width), samples=1)
    batch = (features, InputSpec("target", (geometry.batch,), width))
    return Model(Objective(Rae(width, left, right), classification), batch)
