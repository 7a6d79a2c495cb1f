"""What changes between calls: counters, inputs written to, results that the caller writes to."""

import pytest
import torch
from torch import Tensor, fx, nn

from experiments.compilation.interface import RewritePolicy, Rewritten, violations
from experiments.compilation.live.backends.base import Task
from experiments.compilation.live.costs import Bench, MeasuredPrices
from experiments.compilation.live.exactness import exact_places
from experiments.compilation.live.lower import lower
from experiments.compilation.live.types import Inference
from experiments.compilation.policies.constant_folding import ConstantFolding, marked
from experiments.compilation.policies.cse import Cse
from tests.experiments.compilation.graphs import module_of, took

pytestmark = pytest.mark.torch


def done(policy: RewritePolicy, task: Task) -> tuple[Rewritten, fx.GraphModule]:
    found = policy.rewrite(task.graph, Bench(Inference(), MeasuredPrices("cpu")))
    return found, lower(found.graph, task.origin)


class Counts(nn.Module):
    """Twice the number of calls so far, as it was before this call."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        found = x + self.calls * 2
        self.calls.add_(1)
        return found


def test_a_counter_is_no_constant() -> None:
    task = Task(Counts(), (torch.zeros(2),), "cpu")
    found, lowered = done(ConstantFolding(), task)
    assert took(found) == []
    assert [lowered(torch.zeros(2)).tolist() for _ in range(3)] == [[0, 0], [2, 2], [4, 4]]
    doubled = next(node.name for node in task.graph.ops if node.target == "aten.mul.Tensor")
    wrong = marked(task.graph, {doubled})
    assert violations(wrong, task.graph) == [f"{doubled} is to be computed once but depends on what changes"]


def test_an_input_that_is_written_to_has_a_type_and_is_written_to() -> None:
    task = Task(module_of(lambda x: x.mul_(2)), (torch.ones(2),), "cpu")
    assert violations(task.graph, task.graph) == []
    x = torch.ones(2)
    assert done(Cse(), task)[1](x).tolist() == x.tolist() == [2, 2]


def test_a_folded_result_that_the_caller_writes_to_is_itself_again_in_the_next_call() -> None:
    task = Task(module_of(lambda x: (x + 1, torch.ones(4).view(2, 2))), (torch.ones(1),), "cpu")
    found, lowered = done(ConstantFolding(), task)
    assert len(took(found)) == 2
    for _ in range(2):
        ones = lowered(torch.ones(1))[1]
        assert ones.tolist() == [[1, 1], [1, 1]]
        ones.zero_()


def test_a_duplicate_of_something_that_stayed_is_equal_by_what_both_are_made_of() -> None:
    """Two chains of two ops, and a reader of both: the second chain goes, whatever the first one gives."""
    task = Task(module_of(lambda x: (x * 2 + 1) * (x * 2 + 1)), (torch.randn(3),), "cpu")
    found, _ = done(Cse(), task)
    assert len(took(found)) == 2
    assert exact_places(task.graph, found.graph, "cpu", 0) == (1, "")
