"""A rewritten model and the original trained alike.

The same batches, the same steps of plain gradient descent.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from experiments.compilation.live.backends.base import Compiled, Inputs, Task
from experiments.compilation.live.batches import Batches
from experiments.core.spec import Series

FIRST_SEED = 200_000
RATE = 0.01
#: Batches that are seen in turn: targets are random, so only a batch that was seen before can be learnt.
DISTINCT = 2


@dataclass(frozen=True)
class Curve:
    """Losses of training ours and the original, as a run reports them."""

    metrics: Mapping[str, float]
    report: Mapping[str, Any]
    series: Mapping[str, Series]


def trained_beside(task: Task, ours: Compiled, steps: int) -> Curve:
    """Return losses of both over ``steps`` batches.

    A graph that computes in float16 has its loss scaled, as its gradients would vanish otherwise; ``skipped``
    are the steps whose gradients overflowed.
    """
    assert isinstance(ours.call, nn.Module)
    source = Batches(task)
    drawn = [source.draw(FIRST_SEED + task.seed + number) for number in range(min(steps, DISTINCT))]
    batches = [drawn[step % DISTINCT] for step in range(steps)]
    plain, _ = losses(copy.deepcopy(task.module), batches, None)
    scaler = torch.amp.GradScaler(task.device) if _in_float16(ours.call) else None
    own, skipped = losses(copy.deepcopy(ours.call), batches, scaler)
    x = [float(step) for step in range(steps)]
    distance = max(abs(a - b) for a, b in zip(own, plain, strict=True))
    return Curve(
        {
            "initial_loss": plain[0],
            "final_loss": own[-1],
            "final_loss_in_float32": plain[-1],
            "skipped_steps": float(skipped),
        },
        {
            "loss_distance": distance,
            "loss_scale": scaler.get_scale() if scaler else None,
            "learning_rate": RATE,
        },
        {"loss": Series("nats", x, own), "loss in float32": Series("nats", x, plain)},
    )


def losses(
    module: nn.Module, batches: list[Inputs], scaler: torch.amp.GradScaler | None
) -> tuple[list[float], int]:
    """Return the loss of each step and how many steps were skipped."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=RATE)
    found, skipped = [], 0
    for batch in batches:
        optimizer.zero_grad()
        loss = module(*batch)
        found.append(float(loss.detach()))
        skipped += _step(loss, optimizer, scaler)
    return found, skipped


def _step(loss: torch.Tensor, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler | None) -> bool:
    """One step; whether it was skipped, which shows in a smaller scale."""
    if scaler is None:
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return False
    before = scaler.get_scale()
    scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
    scaler.step(optimizer)
    scaler.update()
    return scaler.get_scale() < before


def _in_float16(module: nn.Module) -> bool:
    graph = getattr(module, "graph", None)
    values = () if graph is None else (node.meta.get("val") for node in graph.nodes)
    return any(isinstance(value, torch.Tensor) and value.dtype == torch.float16 for value in values)
