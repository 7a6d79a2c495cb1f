"""GoogLeNet (Szegedy et al. 2015, table 1) without the two auxiliary classifiers and with their
5x5 branch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from experiments.models.convnets import convolution
from experiments.models.model import Geometry, Model
from experiments.models.vision import image_model

#: Per module of table 1: #1x1, #3x3 reduce, #3x3, #5x5 reduce, #5x5, pool proj.
INCEPTIONS = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
#: A pooling of stride 2 follows these.
POOLED_AFTER = ("3b", "4e")


class Inception(nn.Module):
    """Four branches over the same input, concatenated by channel."""

    def __init__(self, inputs: int, one: int, reduce3: int, three: int, reduce5: int, five: int, pool: int):
        super().__init__()
        self.branches = nn.ModuleList(
            (
                nn.Sequential(*convolution(inputs, one, 1)),
                nn.Sequential(*convolution(inputs, reduce3, 1), *convolution(reduce3, three, 3, 1, 1)),
                nn.Sequential(*convolution(inputs, reduce5, 1), *convolution(reduce5, five, 5, 1, 2)),
                nn.Sequential(nn.MaxPool2d(3, 1, 1), *convolution(inputs, pool, 1)),
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)


def googlenet(geometry: Geometry) -> Model:
    layers = nn.Sequential(*convolution(3, 64, 7, 2, 3), nn.MaxPool2d(3, 2, ceil_mode=True))
    layers.extend(
        [*convolution(64, 64, 1), *convolution(64, 192, 3, 1, 1), nn.MaxPool2d(3, 2, ceil_mode=True)]
    )
    inputs = 192
    for name, sizes in INCEPTIONS.items():
        layers.add_module(name, Inception(inputs, *sizes))
        inputs = sizes[0] + sizes[2] + sizes[4] + sizes[5]
        if name in POOLED_AFTER:
            layers.add_module(f"pool after {name}".replace(" ", "_"), nn.MaxPool2d(3, 2, ceil_mode=True))
    layers.extend([nn.AdaptiveAvgPool2d(1), nn.Flatten()])
    return image_model(geometry, layers, inputs)
