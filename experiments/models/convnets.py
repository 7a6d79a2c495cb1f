"""AlexNet, OverFeat and VGG-16: convolutions in a row, then three fully connected layers; no dropout."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from torch import nn

from experiments.models.model import Geometry, Model, Objective, classification
from experiments.models.vision import CLASSES, image_batch


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, kernel, stride, padding), nn.ReLU(inplace=True)]


def _classifier(geometry: Geometry, features: list[nn.Module], pooled: int, widths: Sequence[int]) -> Model:
    """``features``, pooled to ``pooled`` x ``pooled``, then fully connected layers of ``widths``."""
    layers: list[nn.Module] = []
    sizes = [widths[0] * pooled * pooled, *widths[1:]]
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU(inplace=True)]
    body = nn.Sequential()
    body.add_module("features", nn.Sequential(*features))
    body.add_module("pool", nn.AdaptiveAvgPool2d(pooled))
    body.add_module("flatten", nn.Flatten())
    body.add_module("classifier", nn.Sequential(*layers, nn.Linear(sizes[-1], CLASSES)))
    return Model(Objective(body, classification), image_batch(geometry))


def alexnet(geometry: Geometry) -> Model:
    """The single-tower form (Krizhevsky 2014, "One weird trick")."""
    features = [*convolution(3, 64, 11, 4, 2), nn.MaxPool2d(3, 2)]
    features += [*convolution(64, 192, 5, 1, 2), nn.MaxPool2d(3, 2)]
    features += [*convolution(192, 384, 3, 1, 1), *convolution(384, 256, 3, 1, 1)]
    features += [*convolution(256, 256, 3, 1, 1), nn.MaxPool2d(3, 2)]
    return _classifier(geometry, features, 6, (256, 4096, 4096))


def overfeat(geometry: Geometry) -> Model:
    """The fast model (Sermanet et al. 2014, table 1), 231 pixels a side."""
    features = [*convolution(3, 96, 11, 4), nn.MaxPool2d(2)]
    features += [*convolution(96, 256, 5), nn.MaxPool2d(2)]
    features += [*convolution(256, 512, 3, 1, 1), *convolution(512, 1024, 3, 1, 1)]
    features += [*convolution(1024, 1024, 3, 1, 1), nn.MaxPool2d(2)]
    return _classifier(geometry, features, 6, (1024, 3072, 4096))


def vgg16(geometry: Geometry) -> Model:
    """Configuration D (Simonyan & Zisserman 2015, table 1): 13 convolutions, 3 fully connected layers."""
    features: list[nn.Module] = []
    inputs = 3
    for outputs, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            features += convolution(inputs, outputs, 3, 1, 1)
            inputs = outputs
        features.append(nn.MaxPool2d(2))
    return _classifier(geometry, features, 7, (512, 4096, 4096))
