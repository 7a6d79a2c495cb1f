"""The same training in one process, one mini-batch after another: what asynchronous methods are compared
with.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.parallel.live.asynchronous.learner import Learner
from experiments.parallel.live.asynchronous.problem import TrainingProblem


@dataclass(frozen=True)
class Sequential:
    """The loss of each mini-batch before its update, and the weights at the end by name."""

    losses: list[float]
    weights: dict[str, Tensor]


def sequential(problem: TrainingProblem, updates: int) -> Sequential:
    """``updates`` by the plan's rates, without delays. The problem's model is trained."""
    named = dict(problem.built.module.named_parameters())
    weights = list(named.values())
    learner, losses = Learner(problem.training.learning), []
    for update in range(updates):
        found = [gradients_of(problem, update * problem.parts + part) for part in range(problem.parts)]
        losses.append(sum(loss for loss, _ in found) / problem.parts)
        learner.update(weights, mean([gradients for _, gradients in found]), update)
    return Sequential(losses, {name: weight.detach().clone() for name, weight in named.items()})


def gradients_of(problem: TrainingProblem, position: int) -> tuple[float, list[Tensor]]:
    """Loss and gradients of one part with the model's present weights."""
    loss = problem.built.module(*problem.part(position))
    gradients = torch.autograd.grad(loss, list(problem.built.module.parameters()))
    return loss.item(), list(gradients)


def mean(gradients: list[list[Tensor]]) -> list[Tensor]:
    """Added in order, then divided: the order in which workers and stages add them too."""
    total = [gradient.clone() for gradient in gradients[0]]
    for row in gradients[1:]:
        torch._foreach_add_(total, row)
    torch._foreach_div_(total, len(gradients))
    return total
