"""ResNet (He et al. 2016, table 1): basic blocks up to 34 layers, bottlenecks from 50, stride in the 3x3."""

from __future__ import annotations

from torch import Tensor, nn

from experiments.core.errors import BadInput
from experiments.models.model import Geometry, Model
from experiments.models.vision import image_model

BASIC, BOTTLENECK = 1, 4
#: depth -> (expansion of the block, blocks of each stage)
STAGES = {
    18: (BASIC, (2, 2, 2, 2)),
    34: (BASIC, (3, 4, 6, 3)),
    50: (BOTTLENECK, (3, 4, 6, 3)),
    101: (BOTTLENECK, (3, 4, 23, 3)),
    152: (BOTTLENECK, (3, 8, 36, 3)),
}


def conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class Residual(nn.Module):
    """``relu(branch(x) + shortcut(x))``; the shortcut is a 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, width: int, expansion: int, stride: int) -> None:
        super().__init__()
        outputs = width * expansion
        if expansion == BASIC:
            layers = [conv_norm(inputs, width, 3, stride), nn.ReLU(inplace=True), conv_norm(width, width, 3)]
        else:
            reduce, spatial = conv_norm(inputs, width, 1), conv_norm(width, width, 3, stride)
            layers = [
                reduce,
                nn.ReLU(inplace=True),
                spatial,
                nn.ReLU(inplace=True),
                conv_norm(width, outputs, 1),
            ]
        self.branch = nn.Sequential(*layers)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else conv_norm(inputs, outputs, 1, stride)
        self.activation = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = self.shortcut(x)
        out: Tensor = self.activation(self.branch(x).add_(shortcut))
        return out


def resnet(geometry: Geometry, depth: int) -> Model:
    if depth not in STAGES:
        raise BadInput(f"no ResNet of depth {depth}", "depth", f"one of {', '.join(map(str, STAGES))}")
    expansion, counts = STAGES[depth]
    layers: list[nn.Module] = [conv_norm(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, count in enumerate(counts):
        for block in range(count):
            stride = 2 if stage and not block else 1
            layers.append(Residual(inputs, 64 << stage, expansion, stride))
            inputs = (64 << stage) * expansion
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return image_model(geometry, nn.Sequential(*layers), inputs)
