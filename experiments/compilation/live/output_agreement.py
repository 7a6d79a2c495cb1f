"""An approximation compared with eager on batches of its own: noise, top-1 agreement, loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from experiments.compilation.live.backends.base import Compiled, Inputs, Task
from experiments.compilation.live.batches import Batches
from experiments.compilation.live.kept_weights import finite
from experiments.compilation.planning.numerics.quantization import decibels
from experiments.models.model import Objective

#: Batches that outputs are compared on, known by their seeds; calibration sees others.
EVALUATED, FIRST_SEED = 8, 100_000


@torch.no_grad()
def compare_outputs(task: Task, ours: Compiled) -> Compiled:
    """Return ``ours`` with noise, top-1 agreement and loss against eager on batches drawn for this."""
    source = Batches(task)
    seeds = range(FIRST_SEED + task.seed, FIRST_SEED + task.seed + EVALUATED)
    seen: list[_Outputs] = []
    for seed in seeds:
        batch = source.draw(seed)
        inputs = batch[: source.inputs]
        seen.append(_outputs(task, task.module(*inputs), ours.call(*inputs), batch[source.inputs :]))
    merged = {name: [outputs[name] for outputs in seen] for name in seen[0]}
    metrics = _metrics(merged)
    report = dict(ours.report) | {"evaluated_batches": list(seeds)}
    return replace(ours, metrics=dict(ours.metrics) | metrics, report=report)


_Outputs = dict[str, float]


def _outputs(task: Task, plain: Any, own: Any, targets: Inputs) -> _Outputs:
    """One batch: power of signal and noise over all outputs, agreement and losses of the first."""
    pairs = list(zip(tensors(plain), tensors(own), strict=True))
    found = {
        "signal": sum(float(base.double().square().sum()) for base, _ in pairs),
        "noise": sum(float((base.double() - mine.double()).square().sum()) for base, mine in pairs),
    }
    base, mine = pairs[0]
    if base.dim() > 1 and base.shape[-1] > 1:
        found["agreement"] = float((base.argmax(-1) == mine.argmax(-1)).double().mean())
    if isinstance(task.module, Objective) and len(targets) == 1:
        found["loss"] = float(task.module.loss(plain, targets[0]))
        found["own_loss"] = float(task.module.loss(own, targets[0]))
    return found


def _metrics(rows: Mapping[str, list[float]]) -> dict[str, float]:
    metrics = {"sqnr": finite(decibels(sum(rows["signal"]), sum(rows["noise"])))}
    if "agreement" in rows:
        metrics["top1_agreement"] = float(np.mean(rows["agreement"]))
    if "loss" in rows:
        metrics["loss_increase"] = float(np.mean(rows["own_loss"]) - np.mean(rows["loss"]))
    return metrics


def tensors(value: Any) -> list[Tensor]:
    """Return the tensors of a model's output."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
