"""Batches of a task's model, each known by its seed."""

from __future__ import annotations

import torch

from experiments.compilation.live.backends.base import Inputs, Task
from experiments.models.build import build, chosen
from experiments.models.model import InputSpec


class Batches:
    """Draws whole batches (targets last) as the task's own was drawn."""

    def __init__(self, task: Task) -> None:
        assert task.source is not None, "the task does not know its model's source"
        self._device = task.device
        self._dtype = getattr(torch, chosen(task.source).dtype)
        model = build(task.source, weights=False)
        self._specs: tuple[InputSpec, ...] = model.inputs
        self.inputs = len(model.batch(training=False))

    def draw(self, seed: int) -> Inputs:
        generator = torch.Generator().manual_seed(seed)
        return tuple(spec.sample(self._dtype, generator).to(self._device) for spec in self._specs)
