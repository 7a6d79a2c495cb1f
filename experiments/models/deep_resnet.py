"""Residual networks of any depth for ImageNet: four stages of bottlenecks, ``stage1.0``, ``stage1.1`` ...

Their layers are counted as their papers count them: three convolutions a bottleneck, the first convolution
and the classifier. ``preactivation`` 1 puts normalization and rectifier before each convolution (He et al.
2016, Identity Mappings in Deep Residual Networks, figure 4e), 0 after it (``resnet.Residual``).
"""

from __future__ import annotations

from torch import Tensor, nn

from experiments.models.model import Geometry, Model
from experiments.models.resnet import BOTTLENECK, Residual, conv_norm
from experiments.models.vision import image_model

FIRST_WIDTH = 64


def norm_conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """Return normalization, rectifier and convolution, in this order."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(inplace=True), conv)


class Preactivated(nn.Module):
    """``branch(x) + x``, nothing after the sum.

    Where the shape changes, the shortcut is a 1x1 convolution of what the branch activates first.
    """

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * BOTTLENECK
        self.activation = nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(inplace=True))
        self.branch = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False),
            norm_conv(width, width, 3, stride),
            norm_conv(width, outputs, 1),
        )
        same = stride == 1 and inputs == outputs
        self.shortcut = None if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        active = self.activation(x)
        shortcut = x if self.shortcut is None else self.shortcut(active)
        out: Tensor = self.branch(active).add_(shortcut)
        return out


def _stage(inputs: int, width: int, count: int, stride: int, preactivation: bool) -> nn.Sequential:
    blocks: list[nn.Module] = []
    for _ in range(count):
        block = Preactivated if preactivation else Residual
        sizes = (inputs, width, stride) if preactivation else (inputs, width, BOTTLENECK, stride)
        blocks.append(block(*sizes))
        inputs, stride = width * BOTTLENECK, 1
    return nn.Sequential(*blocks)


def deep_resnet(
    geometry: Geometry, stage1: int, stage2: int, stage3: int, stage4: int, preactivation: int = 0
) -> Model:
    """Build the network with that many bottlenecks in each stage."""
    features, inputs = nn.Sequential(), FIRST_WIDTH
    stem = (conv_norm(3, inputs, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
    features.add_module("stem", nn.Sequential(*stem))
    for number, count in enumerate((stage1, stage2, stage3, stage4)):
        width, stride = FIRST_WIDTH << number, 2 if number else 1
        stage = _stage(inputs, width, count, stride, bool(preactivation))
        features.add_module(f"stage{number + 1}", stage)
        inputs = width * BOTTLENECK
    if preactivation:
        features.add_module("last", nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(inplace=True)))
    features.add_module("pool", nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()))
    return image_model(geometry, features, inputs)
