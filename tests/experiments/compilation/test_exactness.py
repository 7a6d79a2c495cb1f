"""A rewrite that claims to be exact is held to it on whole numbers, place by place."""

import pytest
import torch

from experiments.compilation.interface import Draft, Ref
from experiments.compilation.live.costs import Bench, MeasuredPrices
from experiments.compilation.live.exactness import exact_places
from experiments.compilation.live.export import export, records
from experiments.compilation.live.types import Inference
from experiments.compilation.policies.cse import Cse
from tests.experiments.compilation.graphs import module_of

pytestmark = pytest.mark.torch


def test_a_sum_in_another_order_is_exact_and_a_difference_is_not() -> None:
    """x @ a + x @ b read by relu: against x @ (a + b), and against x @ (a - b)."""
    inputs = torch.randn(2, 3), torch.randn(3, 4), torch.randn(3, 4)
    before = records(export(module_of(lambda x, a, b: torch.relu(x @ a + x @ b)), inputs))
    x, a, b = (Ref(node.name) for node in before.inputs)

    def with_product(target: str) -> tuple[int, str]:
        draft = Draft(before, Inference())
        draft.replace(Ref("add"), draft.op("aten.mm.default", x, draft.op(target, a, b)))
        return exact_places(before, draft.finish(), "cpu", 0)

    assert with_product("aten.add.Tensor") == (1, "")
    assert with_product("aten.sub.Tensor") == (
        1,
        "whole numbers in place of what stayed: relu reads another value than before",
    )


def test_in_bfloat16_whole_numbers_round_so_nothing_is_compared() -> None:
    x = torch.randn(2, 2, dtype=torch.bfloat16)
    before = records(export(module_of(lambda x: torch.relu(x + x)), (x,)))
    draft = Draft(before, Inference())
    draft.replace(Ref("add"), draft.op("aten.mul.Scalar", Ref(before.inputs[0].name), 2))
    assert exact_places(before, draft.finish(), "cpu", 0) == (0, "")


class TwiceWithOnes(torch.nn.Module):
    """The same sum twice, each with ones of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4, bias=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.ones(4) + self.inner(x), torch.ones(4) + self.inner(x)


class OnesTwice(torch.nn.Module):
    """A product of two sums that are made of the same ones, and of nothing else."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ones = torch.ones(4)
        return x * ((ones * 2 + 1) * (ones * 2 + 1))


def test_what_is_made_of_ones_alone_is_computed_where_a_duplicate_gives_way() -> None:
    graph = records(export(OnesTwice().eval(), (torch.randn(2, 4),)))
    once = Cse().rewrite(graph, Bench(Inference(), MeasuredPrices("cpu"))).graph
    assert len(once.nodes) == len(graph.nodes) - 2
    assert exact_places(graph, once, "cpu", 0) == (1, "")


def test_ones_are_ones_where_a_duplicate_gives_way() -> None:
    """The duplicate's ones are computed, and those of the sum that stayed may not be other numbers."""
    graph = records(export(TwiceWithOnes().eval(), (torch.randn(2, 4),)))
    once = Cse().rewrite(graph, Bench(Inference(), MeasuredPrices("cpu"))).graph
    assert len(once.nodes) < len(graph.nodes)
    assert exact_places(graph, once, "cpu", 0) == (1, "")


class Tables(torch.nn.Module):
    """Two buffers of the same broken values, ones that change nothing, and indices beyond any draw."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Buffer(torch.randn(4)), torch.nn.Buffer(torch.zeros(4))
        self.second.copy_(self.first)
        self.ones, self.rows = torch.nn.Buffer(torch.ones(4)), torch.nn.Buffer(torch.tensor([5, 3]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * self.ones + self.first).index_select(0, self.rows) * self.second


def test_constants_are_what_they_are() -> None:
    """One of two equal buffers may give way, a product with ones may go, another buffer may not be read."""
    module = Tables()
    origin = export(module, (torch.randn(6, 4),))
    graph, values = records(origin), dict(module.named_buffers())
    read = {node.target: Ref(node.name) for node in graph.nodes if node.kind == "constant"}
    product = next(node for node in graph.ops if node.target == "aten.mul.Tensor")
    total = next(node for node in graph.ops if node.target == "aten.add.Tensor")

    def compared(old: Ref, new: Ref) -> tuple[int, str]:
        draft = Draft(graph, Inference())
        draft.replace(old, new)
        return exact_places(graph, draft.finish(), "cpu", 0, constants=values)

    assert compared(read["second"], read["first"]) == (1, "")
    assert compared(Ref(product.name), product.refs[0]) == (1, "")
    assert compared(read["first"], read["ones"])[1] and compared(Ref(total.name), Ref(product.name))[1]
    assert not exact_places(graph, graph, "cpu", 0, constants=values)[1]
