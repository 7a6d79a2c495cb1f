"""What all image classifiers share: pictures in, 1000 classes out."""

from __future__ import annotations

from torch import nn

from experiments.models.model import Geometry, InputSpec, Model, Objective, classification

CLASSES = 1000


def image_batch(geometry: Geometry) -> tuple[InputSpec, InputSpec]:
    """[batch, 3, image, image] pictures and [batch] labels."""
    pictures = InputSpec("pictures", (geometry.batch, 3, geometry.image, geometry.image))
    return pictures, InputSpec("target", (geometry.batch,), CLASSES)


def image_model(geometry: Geometry, features: nn.Module, width: int) -> Model:
    """``features`` [batch, width] and one linear classifier."""
    body = nn.Sequential()
    body.add_module("features", features)
    body.add_module("classifier", nn.Linear(width, CLASSES))
    return Model(Objective(body, classification), image_batch(geometry))
