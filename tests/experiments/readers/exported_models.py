"""Models of the zoo, and small ones of our own, exported to files: what the tests of ``onnx`` and ``pt2``
read back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload
from experiments.models.build import build
from experiments.profiling.capture import capture
from experiments.sources import load
from experiments.workloads.model import ModelSource
from experiments.workloads.step import Step

FORWARD = 0
BERT = {
    "model_type": "bert",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 200,
    "max_position_embeddings": 32,
}


@dataclass(frozen=True)
class Original:
    """A model as the zoo or a configuration gives it, its body without the loss, and a batch for the body."""

    source: ModelSource
    body: nn.Module
    batch: tuple[Tensor, ...]


def original(name: str, **options: Any) -> Original:
    """Weights drawn so that no two tensors are equal: exporters keep equal tensors once."""
    config = BERT if name == "bert" else {}
    zoo = "" if config else name
    source = ModelSource(name, zoo=zoo, config=config, options=WorkloadOptions(dropout=False, **options))
    torch.manual_seed(1)
    model = build(source)
    for parameter in model.module.parameters():
        nn.init.normal_(parameter, 1.0 if parameter.ndim == 1 else 0.0, 0.05)
    generator = torch.Generator().manual_seed(2)
    batch = tuple(spec.sample(torch.float32, generator) for spec in model.batch(training=False))
    return Original(source, model.module.body, batch)


def open_batch(made: Original) -> tuple[Any, ...]:
    """The first dimension of each argument left open, in the form that each body's signature wants."""
    sizes = tuple({0: torch.export.Dim("batch")} for _ in made.batch)
    return (sizes,) if made.source.config else sizes


def read_back(file: Path, options: WorkloadOptions) -> ModelSource:
    value = load(Workload(str(file), options=options)).value
    assert isinstance(value, ModelSource)
    return value


def greatest_difference(made: Original, source: ModelSource) -> float:
    """Between the outputs of the original and of what was read, relative to the largest output."""
    again = build(source).module.body
    with torch.no_grad():
        expected, ours = made.body.eval()(*made.batch), again.eval()(*made.batch)
    return float((expected - ours).abs().max() / expected.abs().max())


def both_steps(made: Original, source: ModelSource) -> tuple[Step, Step]:
    return capture(made.source), capture(source)


def forward_flops(step: Step) -> float:
    return float(step.ops.flops[step.ops.phase == FORWARD].sum())


def same_step(expected: Step, ours: Step, peak: float) -> None:
    """Equal parameters and FLOPs; the live peak within ``peak`` of the original's."""
    assert ours.facts["parameters"] == expected.facts["parameters"]
    assert forward_flops(ours) == forward_flops(expected)
    assert abs(ours.live_peak / expected.live_peak - 1) <= peak


def layers(step: Step) -> Sequence[str]:
    return sorted({path for path in np.array(step.ops.module, object).tolist() if path})
