"""Inception v3 (Szegedy et al. 2016, table 1) without its auxiliary classifier.

Widths that the table leaves open are those of the authors' released network, which torchvision follows.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from experiments.models.model import Geometry, Model
from experiments.models.vision import image_model

#: A convolution of a branch: filters, kernel, stride. Of stride 1 it keeps the picture's size.
Conv = tuple[int, int | tuple[int, int], int]
WIDE, HIGH = (1, 7), (7, 1)


class ConvNorm(nn.Sequential):
    """A convolution without bias, batch normalization and ReLU."""

    def __init__(self, inputs: int, conv: Conv, padded: bool = True) -> None:
        filters, kernel, stride = conv
        sides = (kernel, kernel) if isinstance(kernel, int) else kernel
        padding = (sides[0] // 2, sides[1] // 2) if padded and stride == 1 else 0
        super().__init__(
            nn.Conv2d(inputs, filters, sides, stride, padding, bias=False),
            nn.BatchNorm2d(filters, eps=0.001),
            nn.ReLU(inplace=True),
        )


class Chain(nn.Sequential):
    """Convolutions one after another, or none; ``outputs`` are the channels of the last."""

    def __init__(self, inputs: int, convs: Sequence[Conv], before: Sequence[nn.Module] = ()) -> None:
        super().__init__(*before)
        for conv in convs:
            self.append(ConvNorm(inputs, conv))
            inputs = conv[0]
        self.outputs = inputs


class Fork(nn.Module):
    """A chain whose last 3x3 is split into a 1x3 and a 3x1 side by side (figure 7 of the paper)."""

    def __init__(self, inputs: int, convs: Sequence[Conv]) -> None:
        super().__init__()
        self.stem = Chain(inputs, convs)
        self.arms = nn.ModuleList(ConvNorm(self.stem.outputs, (384, side, 1)) for side in ((1, 3), (3, 1)))
        self.outputs = 768

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return torch.cat([arm(x) for arm in self.arms], dim=1)


class Branches(nn.Module):
    """Branches over the same input, concatenated by channel."""

    def __init__(self, *branches: Chain | Fork) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)
        self.outputs = sum(branch.outputs for branch in branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)


def _one(filters: int) -> Conv:
    return filters, 1, 1


def _pool_branch(inputs: int, filters: int) -> Chain:
    return Chain(inputs, [_one(filters)], [nn.AvgPool2d(3, 1, 1)])


def _module_35(inputs: int, pooled: int) -> Branches:
    return Branches(
        Chain(inputs, [_one(64)]),
        Chain(inputs, [_one(48), (64, 5, 1)]),
        Chain(inputs, [_one(64), (96, 3, 1), (96, 3, 1)]),
        _pool_branch(inputs, pooled),
    )


def _module_17(inputs: int, width: int) -> Branches:
    two = [_one(width), (width, WIDE, 1), (192, HIGH, 1)]
    four = [_one(width), (width, HIGH, 1), (width, WIDE, 1), (width, HIGH, 1), (192, WIDE, 1)]
    return Branches(
        Chain(inputs, [_one(192)]), Chain(inputs, two), Chain(inputs, four), _pool_branch(inputs, 192)
    )


def _module_8(inputs: int) -> Branches:
    return Branches(
        Chain(inputs, [_one(320)]),
        Fork(inputs, [_one(384)]),
        Fork(inputs, [_one(448), (384, 3, 1)]),
        _pool_branch(inputs, 192),
    )


def _reduction(inputs: int, *branches: Sequence[Conv]) -> Branches:
    """Half of the picture's size: convolutions of stride 2 and a pooling side by side."""
    pooling = Chain(inputs, (), [nn.MaxPool2d(3, 2)])
    return Branches(*(Chain(inputs, convs) for convs in branches), pooling)


def _stem() -> list[nn.Module]:
    return [
        ConvNorm(3, (32, 3, 2)),
        ConvNorm(32, (32, 3, 1), padded=False),
        ConvNorm(32, (64, 3, 1)),
        nn.MaxPool2d(3, 2),
        ConvNorm(64, _one(80)),
        ConvNorm(80, (192, 3, 1), padded=False),
        nn.MaxPool2d(3, 2),
    ]


def inception_v3(geometry: Geometry) -> Model:
    """Return the network of 94 convolutions for pictures of 299 x 299."""
    to_17 = _reduction(288, [(384, 3, 2)], [_one(64), (96, 3, 1), (96, 3, 2)])
    factored = [_one(192), (192, WIDE, 1), (192, HIGH, 1), (192, 3, 2)]
    to_8 = _reduction(768, [_one(192), (320, 3, 2)], factored)
    layers = nn.Sequential(
        *_stem(),
        *(_module_35(inputs, pooled) for inputs, pooled in ((192, 32), (256, 64), (288, 64))),
        to_17,
        *(_module_17(768, width) for width in (128, 160, 160, 192)),
        to_8,
        *(_module_8(inputs) for inputs in (1280, 2048)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    )
    return image_model(geometry, layers, 2048)
