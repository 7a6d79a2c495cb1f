"""One graph or a refusal by source line; memory that is planned; XLA's own example of fusion."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from experiments.compilation.live.backends import Task, compile_task  # noqa: E402
from experiments.core.errors import Infeasible  # noqa: E402

pytestmark = pytest.mark.torch


class Calls(nn.Module):
    def __init__(self, body: Callable[..., Any]) -> None:
        super().__init__()
        self.body = body

    def forward(self, *inputs: Tensor) -> Any:
        return self.body(*inputs)


class Breaks(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = x * 2
        torch._dynamo.graph_break()
        return torch.relu(x)


def test_a_model_of_three_graphs_is_refused_by_the_lines_where_it_breaks() -> None:
    with pytest.raises(Infeasible, match="no whole graph but 3") as refused:
        compile_task("whole_graph", {"planned": True}, Task(Breaks().eval(), (torch.ones(4),), "cpu"))
    message = str(refused.value)
    assert "test_whole_graph.py:29 `if x.sum() > 0:`: generic_jump" in message
    assert "test_whole_graph.py:31 `torch._dynamo.graph_break()`: " in message


def test_the_documentations_sum_of_a_sum_and_a_product_is_one_kernel() -> None:
    """``reduce_sum(x + y * z)``: three kernels op by op, one compiled."""
    x, y, z = (torch.randn(32, 32) for _ in range(3))
    made = compile_task("whole_graph", {}, Task(Calls(lambda x, y, z: (x + y * z).sum()), (x, y, z), "cpu"))
    assert made.metrics["graphs"] == made.metrics["kernels"] == 1
    assert torch.allclose(made.call(x, y, z), (x + y * z).sum(), rtol=1e-4)


def test_buffers_that_never_live_together_share_a_pool() -> None:
    """Four products of 16 x 16 floats (1,024 bytes) in a row: two at a time are alive, so two places serve
    all.
    """
    module = Calls(lambda x: x @ x @ x @ x @ x).eval()
    made = compile_task("whole_graph", {"planned": True}, Task(module, (torch.randn(16, 16),), "cpu"))
    (buffers,) = made.report["kernels"]["buffers"]
    assert buffers == {"alone": 0, "placed": 4, "pools": (1024, 1024)}
