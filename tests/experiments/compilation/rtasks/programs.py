"""Models as tasks, for tests of lanes."""

from __future__ import annotations

import torch
from torch import nn

from experiments.compilation.interface import CONSTANT, Ref
from experiments.compilation.live.backends.base import Task
from experiments.compilation.live.lower import attribute
from experiments.compilation.live.rtasks.program import Values


def task_of(module: nn.Module, *inputs: torch.Tensor) -> Task:
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    return Task(module.eval(), inputs, "cpu")


def bound(task: Task) -> Values:
    """What a program knows before its first op."""
    held = {n.name: attribute(task.origin, n.target) for n in task.graph.nodes if n.kind == CONSTANT}
    held |= {node.name: value for node, value in zip(task.graph.inputs, task.inputs, strict=True)}
    return {Ref(name): value for name, value in held.items()}
