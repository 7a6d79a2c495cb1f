"""BlockDrop (Wu et al., CVPR 2018): a small network looks at the picture and says which residual blocks run.

The flat ResNet of 15 basic blocks in three stages (16, 32, 64 wide) on 32 x 32 pictures; the policy network
has one block a stage. A block runs when any picture of the batch wants it, and the others keep what they had.
The trained weights are not here: so that pictures still differ in what they want, the policy sees their
coarse grid next to its features, both normalized, at a quarter of the weight.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.models.control.constructs import Branch
from experiments.models.model import Geometry, InputSpec, Model, Objective, classification
from experiments.models.resnet import conv_norm

CLASSES = 10
WIDTHS = (16, 32, 64)
GRID = 4


class Block(nn.Module):
    """``relu(branch(x) + kept)`` for the pictures that want the block, ``kept`` for the others."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            conv_norm(inputs, outputs, 3, stride), nn.ReLU(), conv_norm(outputs, outputs, 3)
        )

    def forward(self, x: Tensor, kept: Tensor, wanted: Tensor) -> Tensor:
        return torch.relu(self.branch(x) + kept) * wanted + kept * (1 - wanted)


class Skipped(nn.Module):
    """The block left out: its input, unchanged."""

    def forward(self, x: Tensor, kept: Tensor, wanted: Tensor) -> Tensor:
        return kept


class Shortcut(nn.Module):
    """The identity; at the start of a stage, half the pixels a side and zeros for the new channels."""

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        if self.stride == 1:
            return x
        pooled = F.avg_pool2d(x, self.stride)
        return torch.cat((pooled, torch.zeros_like(pooled)), 1)


def _stem() -> nn.Sequential:
    return nn.Sequential(conv_norm(3, WIDTHS[0], 3), nn.ReLU())


def _blocks(each: int) -> list[tuple[int, int, int]]:
    """(inputs, outputs, stride) of every block."""
    found, inputs = [], WIDTHS[0]
    for stage, width in enumerate(WIDTHS):
        for block in range(each):
            found.append((inputs, width, 2 if stage and not block else 1))
            inputs = width
    return found


class Policy(nn.Module):
    """Pictures to one logit a block, from features and the picture's grid of 4 x 4."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.stem = _stem()
        self.blocks = nn.ModuleList([Block(*sizes) for sizes in _blocks(1)])
        self.shortcuts = nn.ModuleList([Shortcut(stride) for _, _, stride in _blocks(1)])
        self.logits = nn.Linear(WIDTHS[-1] + 3 * GRID**2, blocks, bias=False)

    def forward(self, pictures: Tensor) -> Tensor:
        x = self.stem(pictures)
        always = x.new_ones(len(x), 1, 1, 1)
        for block, shortcut in zip(self.blocks, self.shortcuts, strict=True):
            x = block(x, shortcut(x), always)
        features = F.layer_norm(x.mean((2, 3)), (WIDTHS[-1],)) / 4
        grid = F.layer_norm(F.adaptive_avg_pool2d(pictures, GRID).flatten(1), (3 * GRID**2,))
        logits: Tensor = self.logits(torch.cat((features, grid), 1))
        return logits


class BlockDrop(nn.Module):
    """Pictures to logits through the blocks that the policy network wants."""

    def __init__(self, each: int) -> None:
        super().__init__()
        sizes = _blocks(each)
        self.policy, self.stem = Policy(len(sizes)), _stem()
        self.branches = nn.ModuleList([Branch(Block(*size), Skipped()) for size in sizes])
        self.shortcuts = nn.ModuleList([Shortcut(stride) for _, _, stride in sizes])
        self.classifier = nn.Linear(WIDTHS[-1], CLASSES)

    def forward(self, pictures: Tensor) -> Tensor:
        wanted = (self.policy(pictures) > 0).to(pictures.dtype)
        x = self.stem(pictures)
        for number, (branch, shortcut) in enumerate(zip(self.branches, self.shortcuts, strict=True)):
            mask = wanted[:, number].reshape(-1, 1, 1, 1)
            x = branch(mask.sum() > 0, x, shortcut(x), mask)
        logits: Tensor = self.classifier(x.mean((2, 3)))
        return logits


def blockdrop(geometry: Geometry, each: int) -> Model:
    """``each`` blocks a stage."""
    pictures = InputSpec("pictures", (geometry.batch, 3, geometry.image, geometry.image))
    batch = (pictures, InputSpec("target", (geometry.batch,), CLASSES))
    return Model(Objective(BlockDrop(each), classification), batch)
