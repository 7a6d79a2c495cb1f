"""ResNeXt-29 (16 x 64d) for 32 x 32 pictures (Xie et al., CVPR 2017, table 7), as Rammer measures it.

The form of the OSDI 2020 artifact: the sixteen paths are convolutions of their own, joined by concatenation
(figure 3 b of the ResNeXt paper), each 64 wide in every stage; a stage's outputs are 64, 128 and 256 wide,
and the shortcut that changes shape is an average pool with zeros for the new channels. Sixteen small
convolutions side by side are what a scheduler of blocks has to fill a device with.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.models.model import Geometry, InputSpec, Model, Objective, classification
from experiments.models.resnet import conv_norm

CLASSES = 10
OUTPUTS = (64, 128, 256)
BLOCKS = 3


class Paths(nn.Module):
    """``count`` paths of a 1x1 and a 3x3 convolution, and a 1x1 convolution over all of them.

    The paths are concatenated before it.
    """

    def __init__(self, inputs: int, outputs: int, count: int, width: int, stride: int) -> None:
        super().__init__()
        self.paths = nn.ModuleList([_path(inputs, width, stride) for _ in range(count)])
        self.join = conv_norm(count * width, outputs, 1)
        self.grow, self.stride = outputs - inputs, stride

    def forward(self, x: Tensor) -> Tensor:
        joined = self.join(torch.cat([path(x) for path in self.paths], 1))
        if self.stride > 1:
            half = self.grow // 2
            x = F.pad(F.avg_pool2d(x, self.stride), (0, 0, 0, 0, half, self.grow - half))
        return torch.relu(joined + x)


def _path(inputs: int, width: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        conv_norm(inputs, width, 1, stride), nn.ReLU(), conv_norm(width, width, 3), nn.ReLU()
    )


def resnext29(geometry: Geometry, paths: int, width: int) -> Model:
    layers: list[nn.Module] = [conv_norm(3, OUTPUTS[0], 3), nn.ReLU()]
    inputs = OUTPUTS[0]
    for outputs in OUTPUTS:
        for _ in range(BLOCKS):
            layers.append(Paths(inputs, outputs, paths, width, 2 if outputs > inputs else 1))
            inputs = outputs
    body = nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, CLASSES, bias=False)
    )
    pictures = InputSpec("pictures", (geometry.batch, 3, geometry.image, geometry.image))
    return Model(Objective(body, classification), (pictures, InputSpec("target", (geometry.batch,), CLASSES)))
