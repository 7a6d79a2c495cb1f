"""DenseNet-BC (Huang et al. 2017, table 1): each layer reads the concatenation of all before it
in its block.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from experiments.models.model import Geometry, Model
from experiments.models.vision import image_model

GROWTH = 32
BLOCKS_121 = (6, 12, 24, 16)


def _norm_conv(inputs: int, outputs: int, kernel: int) -> list[nn.Module]:
    conv = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
    return [nn.BatchNorm2d(inputs), nn.ReLU(inplace=True), conv]


class DenseLayer(nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*_norm_conv(inputs, 4 * GROWTH, 1), *_norm_conv(4 * GROWTH, GROWTH, 3))

    def forward(self, earlier: list[Tensor]) -> Tensor:
        out: Tensor = self.layers(torch.cat(earlier, 1))
        return out


class DenseBlock(nn.Module):
    def __init__(self, inputs: int, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DenseLayer(inputs + index * GROWTH) for index in range(count))

    def forward(self, x: Tensor) -> Tensor:
        outputs = [x]
        for layer in self.layers:
            outputs.append(layer(outputs))
        return torch.cat(outputs, 1)


def densenet121(geometry: Geometry) -> Model:
    stem = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
    layers: list[nn.Module] = [stem, nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    width = 64
    for index, count in enumerate(BLOCKS_121):
        layers.append(DenseBlock(width, count))
        width += count * GROWTH
        if index < len(BLOCKS_121) - 1:
            layers += [*_norm_conv(width, width // 2, 1), nn.AvgPool2d(2)]
            width //= 2
    layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return image_model(geometry, nn.Sequential(*layers), width)
