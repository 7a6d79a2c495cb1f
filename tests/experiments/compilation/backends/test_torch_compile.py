"""What the torch.compile backend counts: kernels, graphs, breaks with their line, recompiles with their
guard.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from experiments.compilation.live.backends import Compiled, Task, compile_task, dynamo  # noqa: E402
from experiments.compilation.live.backends.torch_compile import mode_of  # noqa: E402
from experiments.core.errors import Infeasible  # noqa: E402

pytestmark = pytest.mark.torch


class Calls(nn.Module):
    def __init__(self, body: Callable[..., Any]) -> None:
        super().__init__()
        self.body = body

    def forward(self, *inputs: Tensor) -> Any:
        return self.body(*inputs)


class Branch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(x + 1)
        if y.sum() > 0:
            return y * 2
        return y - 1


def inductor(module: nn.Module, *inputs: Tensor, **options: Any) -> Compiled:
    return compile_task("inductor", options, Task(module.eval(), inputs, "cpu"))


def test_a_chain_that_ends_in_a_sum_is_one_kernel_of_four_ops() -> None:
    """x: 64 x 128, b: 128 floats: the kernel reads 4 * (8192 + 128) bytes and writes 4."""
    x, b = torch.randn(64, 128), torch.randn(128)
    made = inductor(Calls(lambda x, b: torch.relu((x + b) * 2).sum()), x, b)
    assert made.metrics["kernels"] == 1
    assert made.metrics["graphs"] == 1
    assert made.metrics["graph_breaks"] == made.metrics["recompiles"] == made.metrics["fallbacks"] == 0
    (kernel,) = made.report["kernels"]["scheduled"]
    assert kernel["ops"] == ("aten.add.Tensor", "aten.mul.Tensor", "aten.relu.default", "aten.sum.default")
    assert kernel["bytes"] == 4 * (64 * 128 + 128) + 4
    assert made.report["kernels"]["emitted"] == ["cpp_fused_add_mul_relu_sum_0"]
    first = made.report["first_calls"]
    assert first["cold"]["wall"] == made.seconds > 0
    assert first["warm"]["wall"] == made.metrics["warm_compile_time"] > 0
    assert first["warm_cache_hits"] == 1
    assert torch.allclose(made.call(x, b), torch.relu((x + b) * 2).sum())


def test_a_branch_on_data_breaks_the_graph_at_its_line() -> None:
    """One call: 2 graphs, 1 break. Both sides run: the other side's graph is the third."""
    made = inductor(Branch(), torch.ones(4))
    assert made.report["graphs_of_one_call"] == 2
    assert made.metrics["graph_breaks"] == 1
    (broken,) = made.report["breaks"]
    assert broken["line"] == "if y.sum() > 0:"
    assert broken["where"].startswith(("tests/experiments", Path(__file__).name))
    assert broken["reason"].startswith("generic_jump")
    assert made.metrics["graphs"] == 3
    with pytest.raises(Infeasible, match=r"no whole graph: .*:\d+ `if y.sum\(\) > 0:`: "):
        inductor(Branch(), torch.ones(4), fullgraph=True)


def test_an_op_that_inductor_does_not_lower_is_a_fallback_and_a_product_a_library_call() -> None:
    made = inductor(Calls(lambda x: torch.linalg.qr(x @ x)[1] + 1), torch.randn(8, 8))
    kinds = [row["kind"] for row in made.report["kernels"]["scheduled"]]
    assert kinds == ["library", "fallback", "generated"]
    assert made.report["first_calls"]["warm_cache_hits"] == 1, "also where others were compiled before"
    assert (made.metrics["library_calls"], made.metrics["fallbacks"]) == (1, 1)


def test_in_training_the_backward_passes_products_are_counted_too() -> None:
    """Two layers without bias, the input asks for no gradient: 2 products forward, 3 backward."""
    module = nn.Sequential(nn.Linear(4, 8, bias=False), nn.Linear(8, 2, bias=False))
    body = Calls(lambda x: module(x).square().sum())
    body.body_module = module
    made = compile_task("inductor", {}, Task(body.train(), (torch.randn(3, 4),), "cpu", training=True))
    assert made.metrics["library_calls"] == 5
    assert all(weight.grad is None for weight in module.parameters())


def test_what_a_mode_switches_on_for_gpus_only_is_said() -> None:
    task = Task(nn.Identity(), (torch.ones(1),), "cpu")
    assert mode_of(task, {}) == {"mode_options": {}, "without_effect": []}
    assert mode_of(task, {"mode": "reduce-overhead"})["without_effect"] == ["triton.cudagraphs"]
    found = mode_of(task, {"mode": "max-autotune"})
    assert set(found["mode_options"]) - set(found["without_effect"]) == {"max_autotune"}


def test_recompiles_name_the_guard_that_failed() -> None:
    """Sizes 2, 3, 4: the second makes the size a symbol, the third fits; another type is another graph."""
    dynamo.reset()
    call = torch.compile(lambda x: x * 2 + 1, backend="eager")
    for x in (torch.ones(2), torch.ones(3), torch.ones(4), torch.ones(4).double()):
        call(x)
    counts = dynamo.read_counts()
    assert counts.graphs == 3
    assert [row.guard.split(".")[0] for row in counts.recompiles] == [
        "tensor 'x' size mismatch at index 0",
        "tensor 'x' dtype mismatch",
    ]
    dynamo.reset()
