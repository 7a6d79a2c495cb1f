"""NASNet-A (6 @ 768) for 32 x 32 pictures (Zoph et al., CVPR 2018): 18 normal and 2 reduction cells of 32
filters.

The cells of figure 4 as the authors' code builds them: separable convolutions are applied twice, ReLU comes
first, the older of the two inputs is brought to the newer one's shape, and what no block of a cell reads is
its output. Without the auxiliary head, which only training uses, and without drop path.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.models.model import Geometry, InputSpec, Model, Objective, classification

CLASSES = 10
STEM = 3  # times the filters of a cell

#: A block adds two values: (operation, index of the value read) twice. Values 0 and 1 are the new and the old
#: input.
NORMAL = (
    (("separable5", 0), ("separable3", 1)),
    (("separable5", 1), ("separable3", 1)),
    (("average", 0), ("identity", 1)),
    (("average", 1), ("average", 1)),
    (("separable3", 0), ("identity", 0)),
)
REDUCTION = (
    (("separable5", 0), ("separable7", 1)),
    (("maximum", 0), ("separable7", 1)),
    (("average", 0), ("separable5", 1)),
    (("identity", 3), ("average", 2)),
    (("separable3", 2), ("maximum", 0)),
)
#: The values that are concatenated: those that no block reads.
NORMAL_OUTPUT: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
REDUCTION_OUTPUT: tuple[int, ...] = (3, 4, 5, 6)


class Separable(nn.Module):
    """ReLU, depth-wise and 1x1 convolution, norm: twice; the stride is the first one's."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for channels, step in ((inputs, stride), (outputs, 1)):
            deep = nn.Conv2d(channels, channels, kernel, step, kernel // 2, groups=channels, bias=False)
            layers += [nn.ReLU(), deep, nn.Conv2d(channels, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out


class Halve(nn.Module):
    """Half the pixels a side: two 1x1 convolutions on grids shifted by one pixel, side by side."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs // 2, 1, 2, bias=False)
        self.second = nn.Conv2d(inputs, outputs - outputs // 2, 1, 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(x)
        shifted = F.pad(x, (0, 1, 0, 1))[:, :, 1:, 1:]
        out: Tensor = self.norm(torch.cat((self.first(x), self.second(shifted)), 1))
        return out


def _fit(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.ReLU(), nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs))


def _pool(function: Callable[..., Tensor], stride: int) -> nn.Module:
    if function is F.max_pool2d:
        return nn.MaxPool2d(3, stride, 1)
    return nn.AvgPool2d(3, stride, 1, count_include_pad=False)


def _operation(name: str, filters: int, stride: int) -> nn.Module:
    if name == "identity":
        return nn.Identity()
    if name.startswith("separable"):
        return Separable(filters, filters, int(name[-1]), stride)
    return _pool(F.max_pool2d if name == "maximum" else F.avg_pool2d, stride)


class Cell(nn.Module):
    """``(new, old)`` to the concatenation of the blocks' unread values."""

    def __init__(self, new: int, old: int, old_is_larger: bool, filters: int, reduction: bool) -> None:
        super().__init__()
        table = REDUCTION if reduction else NORMAL
        self.output = REDUCTION_OUTPUT if reduction else NORMAL_OUTPUT
        self.fit_new = _fit(new, filters)
        self.fit_old = Halve(old, filters) if old_is_larger else _fit(old, filters)
        self.reads = [(first, second) for (_, first), (_, second) in table]
        self.left, self.right = (
            nn.ModuleList([self._side(*block[side], filters, reduction) for block in table])
            for side in (0, 1)
        )

    @staticmethod
    def _side(name: str, value: int, filters: int, reduction: bool) -> nn.Module:
        """One operation; a reduction cell halves the pixels where it reads an input."""
        return _operation(name, filters, 2 if reduction and value < 2 else 1)

    def forward(self, new: Tensor, old: Tensor) -> Tensor:
        values = [self.fit_new(new), self.fit_old(old)]
        for left, right, (first, second) in zip(self.left, self.right, self.reads, strict=True):
            values.append(left(values[first]) + right(values[second]))
        return torch.cat([values[number] for number in self.output], 1)


class NasNet(nn.Module):
    """Stem, three stages of normal cells with a reduction cell between, pooled, classified."""

    def __init__(self, normal: int, filters: int) -> None:
        super().__init__()
        width = filters * STEM
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width))
        self.cells = nn.ModuleList()
        new = old = width
        larger = False
        for stage in range(3):
            for number in range(normal + (stage > 0)):
                reduction = stage > 0 and number == 0
                cell_filters = filters << stage
                self.cells.append(Cell(new, old, larger, cell_filters, reduction))
                kept = REDUCTION_OUTPUT if reduction else NORMAL_OUTPUT
                new, old, larger = cell_filters * len(kept), new, reduction
        self.classifier = nn.Linear(new, CLASSES)

    def forward(self, pictures: Tensor) -> Tensor:
        old = new = self.stem(pictures)
        for cell in self.cells:
            new, old = cell(new, old), new
        logits: Tensor = self.classifier(torch.relu(new).mean((2, 3)))
        return logits


def nasnet(geometry: Geometry, normal: int, filters: int) -> Model:
    """``normal`` cells a stage."""
    pictures = InputSpec("pictures", (geometry.batch, 3, geometry.image, geometry.image))
    batch = (pictures, InputSpec("target", (geometry.batch,), CLASSES))
    return Model(Objective(NasNet(normal, filters), classification), batch)
