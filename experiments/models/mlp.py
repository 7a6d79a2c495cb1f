"""Multi-layer perceptrons."""

from __future__ import annotations

from torch import nn

from experiments.models.model import Geometry, InputSpec, Model, Objective, classification

CLASSES = 10


def mlp(geometry: Geometry, inputs: int, width: int, depth: int) -> Model:
    """``depth`` hidden layers of ``width`` with ReLU, then ``CLASSES`` logits."""
    layers: list[nn.Module] = []
    for size in [inputs, *[width] * (depth - 1)]:
        layers += [nn.Linear(size, width), nn.ReLU()]
    body = nn.Sequential(*layers, nn.Linear(width, CLASSES))
    batch = (InputSpec("features", (geometry.batch, inputs)), InputSpec("target", (geometry.batch,), CLASSES))
    return Model(Objective(body, classification), batch)
