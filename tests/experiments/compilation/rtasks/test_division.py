"""Parts of ops put together are the whole, along every axis that is said to divide them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from experiments.compilation.interface import Graph
from experiments.compilation.live.backends.base import Task
from experiments.compilation.live.rtasks.division import divisions_of
from experiments.compilation.live.rtasks.program import PartialOperators, ScheduledOperator, Values
from tests.experiments.compilation.rtasks.programs import bound, task_of

pytestmark = pytest.mark.torch

WEIGHT, BIAS = torch.randn(6, 4), torch.randn(6)
FILTERS = torch.randn(4, 3, 3, 3)
CHANNELS = torch.rand(4) + 0.5

#: What is called on a drawn tensor of a shape, and the axes (with entries) along which it can be divided.
CALLS: dict[str, tuple[tuple[int, ...], Any, set[int]]] = {
    "linear": ((2, 3, 4), lambda x: F.linear(x, WEIGHT, BIAS), {-1, -2, -3}),
    "product": ((3, 4), lambda x: x @ WEIGHT.t(), {-1, -2}),
    "product with a sum": ((3, 4), lambda x: torch.addmm(BIAS, x, WEIGHT.t()), {-1, -2}),
    "batches of products": ((2, 3, 4), lambda x: torch.bmm(x, x.transpose(1, 2)), {-1, -2, -3}),
    "convolution": ((2, 3, 5, 6), lambda x: F.conv2d(x, FILTERS, stride=2, padding=1), {-3, -4}),
    "groups": ((2, 4, 5, 6), lambda x: F.conv2d(x, FILTERS[:, :1], groups=4), {-4}),
    "normalized channels": (
        (2, 4, 3, 3),
        lambda x: F.batch_norm(x, CHANNELS, CHANNELS, CHANNELS, CHANNELS),
        {-1, -2, -3, -4},
    ),
    "normalized rows": ((2, 3, 6), lambda x: F.layer_norm(x, (6,), BIAS, BIAS), {-2, -3}),
    "softmax over rows": ((2, 3, 4), lambda x: F.softmax(x, dim=1), {-1, -3}),
    "attention": ((2, 2, 3, 4), lambda x: F.scaled_dot_product_attention(x, x, x), {-2, -3, -4}),
    "masked attention": (
        (2, 2, 3, 4),
        lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
        {-3, -4},
    ),
    "pooling": ((2, 3, 6, 6), lambda x: F.max_pool2d(x, 2), {-3, -4}),
    "a sum with a row": ((3, 6), lambda x: x + BIAS, {-1, -2}),
    "a choice": ((3, 6), lambda x: torch.where(x > 0, x, BIAS), {-1, -2}),
    "a sum of rows": ((3, 6), lambda x: x.sum(dim=1), set()),
    "a row of both": ((3, 6), lambda x: torch.cat([x, x]), set()),
}


class Call(nn.Module):
    """One op on its input."""

    def __init__(self, call: Any) -> None:
        super().__init__()
        self.call = call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.call(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", CALLS)
def test_parts_of_an_op_are_the_op(name: str) -> None:
    """One entry of an axis at a time, the last first."""
    shape, call, axes = CALLS[name]
    task = task_of(Call(call), torch.randn(shape))
    graph = task.graph
    op = graph.computing[-1]
    found = divisions_of(op, graph)
    assert set(found) == axes
    truth = task.module(*task.inputs)
    for axis in axes:
        parts = whole_by_blocks(task, graph, op.name, axis)
        torch.testing.assert_close(parts, truth, rtol=1e-5, atol=1e-5)


def whole_by_blocks(task: Task, graph: Graph, name: str, axis: int) -> torch.Tensor:
    """The op's result, computed in as many blocks as the axis has entries, the last first."""
    extent = graph.by_name[name].shape[axis]
    entry = ScheduledOperator((name,), extent, (0,))
    parts = PartialOperators(graph, [(entry,)], "cpu")
    parts._axes[name] = axis
    values: Values = bound(task)
    for node in graph.computing[:-1]:
        parts._whole(node, values)
    parts.prepare(entry, values)
    for block in reversed(range(extent)):
        parts.compute(entry, block, values)
    return parts.value(graph.output.refs[0], values)  # type: ignore[no-any-return]
