"""A model made ready for compiling: the module in the mode that it is compiled in, and one batch."""

from __future__ import annotations

from pathlib import Path

import torch

from experiments.compilation.live.backends.base import Task
from experiments.compilation.live.module_hooks import report_modules
from experiments.core.progress import Progress, silent
from experiments.models.build import build, chosen
from experiments.models.model import Model
from experiments.profiling.timing import default_device
from experiments.workloads.model import ModelSource


def prepare(
    source: ModelSource,
    training: bool,
    seed: int,
    progress: Progress = silent,
    file: Path | None = None,
) -> Task:
    """Return the module and one batch, both drawn from ``seed``.

    Parameters ask for gradients in training only.
    """
    device = default_device()
    torch.manual_seed(seed)
    with report_modules(progress):
        model: Model = build(source)
    dtype = getattr(torch, chosen(source).dtype)
    generator = torch.Generator().manual_seed(seed)
    inputs = tuple(spec.sample(dtype, generator).to(device) for spec in model.batch(training))
    module = model.module.train(training).to(device=device, dtype=dtype)
    for parameter in module.parameters():
        parameter.requires_grad_(training and parameter.is_floating_point())
    return Task(module, inputs, device, seed, training, source, file, progress)
