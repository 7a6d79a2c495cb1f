"""Products joined with additions, and products over one input joined with each other."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from experiments.compilation.policies.concat_qkv import ConcatQkv
from experiments.compilation.policies.fuse_matmul_add import FuseMatmulAdd
from tests.experiments.compilation.graphs import module_of, rewritten, targets

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("shape", [(4,), (1, 4), (2, 1), (2, 4), (1,), ()])
def test_an_addend_that_fits_the_product_rides_on_it(shape: tuple[int, ...]) -> None:
    inputs = torch.randn(2, 3), torch.randn(3, 4), torch.randn(shape)
    done, _, check = rewritten(module_of(lambda a, b, c: a @ b + c), FuseMatmulAdd(), *inputs)
    assert targets(done.graph) == ["aten.addmm.default"]
    assert check.ok, check.counterexample


def test_an_addend_that_widens_the_product_is_refused() -> None:
    inputs = torch.randn(2, 3), torch.randn(3, 4), torch.randn(5, 2, 4)
    done, _, _ = rewritten(module_of(lambda a, b, c: c + a @ b), FuseMatmulAdd(), *inputs)
    assert done.refused == {"add": "the addend of shape [5, 2, 4] widens the product of shape [2, 4]"}


def test_a_product_of_batches_is_flattened_or_added_in_batches() -> None:
    batches, matrix, vector = torch.randn(5, 2, 3), torch.randn(3, 4), torch.randn(4)
    done, _, check = rewritten(module_of(lambda a, b, c: a @ b + c), FuseMatmulAdd(), batches, matrix, vector)
    assert [node.target for node in done.graph.computing] == ["aten.addmm.default"]
    assert check.ok
    other = torch.randn(5, 3, 4)
    done, _, check = rewritten(
        module_of(lambda a, b, c: torch.bmm(a, b) + c), FuseMatmulAdd(), batches, other, vector
    )
    assert targets(done.graph) == ["aten.baddbmm.default"]
    assert check.ok


def test_a_product_that_is_read_twice_or_added_to_itself_stays() -> None:
    a, b = torch.randn(2, 2), torch.randn(2, 2)

    def twice(a: Tensor, b: Tensor) -> Tensor:
        product = a @ b
        return product + product

    done, _, check = rewritten(module_of(twice), FuseMatmulAdd(), a, b)
    assert done.applied == ()
    assert check.ok
    scaled = module_of(lambda a, b: torch.add(a @ b, b, alpha=2))
    assert list(rewritten(scaled, FuseMatmulAdd(), a, b)[0].refused.values()) == ["the addend is scaled by 2"]


def test_of_two_products_that_are_added_one_becomes_the_addend() -> None:
    a, b = torch.randn(2, 2), torch.randn(2, 2)
    done, _, check = rewritten(module_of(lambda a, b: a @ b + b @ a), FuseMatmulAdd(), a, b)
    assert sorted(targets(done.graph)) == ["aten.addmm.default", "aten.matmul.default"]
    assert check.ok


class Attention(nn.Module):
    """Grouped-query projections: 4 query heads and 1 key and value head of 2; the key has no bias."""

    def __init__(self, key_bias: bool = False, tied: bool = False) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(8, 8), nn.Linear(8, 2, bias=key_bias), nn.Linear(8, 2)
        if tied:
            self.value.weight = self.key.weight

    def forward(self, x: Tensor) -> Any:
        query = self.query(x).view(*x.shape[:2], 4, 2).transpose(1, 2)
        key, value = (layer(x).view(*x.shape[:2], 1, 2).transpose(1, 2) for layer in (self.key, self.value))
        return torch.softmax(query @ key.transpose(-1, -2), -1) @ value


def integers(module: nn.Module) -> nn.Module:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randint(-3, 4, parameter.shape))
    return module


def test_three_projections_of_unequal_width_become_one_exactly() -> None:
    x = torch.randint(-3, 4, (2, 5, 8)).float()
    module = integers(Attention())
    done, lowered, check = rewritten(module, ConcatQkv(), x)
    assert targets(done.graph).count("aten.linear.default") == 1
    assert len(done.graph.computing) == 4  # of six: three products are one, and a split is a view
    widths = next(node for node in done.graph.ops if "split" in node.target).arguments[1]
    assert widths == (8, 2, 2)
    assert check.ok
    assert torch.equal(lowered(x), module(x))


def test_a_tied_weight_and_another_input_keep_a_projection_out() -> None:
    done, _, check = rewritten(Attention(tied=True), ConcatQkv(), torch.randn(2, 5, 8))
    assert done.applied == ()
    assert set(done.refused.values()) == {"its weight is tied to another op's"}
    assert check.ok
    layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = layers

        def forward(self, x: Tensor, y: Tensor) -> Any:
            return self.layers[0](x) + self.layers[1](y)

    assert rewritten(Two(), ConcatQkv(), torch.randn(3, 4), torch.randn(3, 4))[0].applied == ()


def test_in_training_every_projection_keeps_its_gradient() -> None:
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = Attention(key_bias=True)

        def forward(self, x: Tensor) -> Any:
            return self.body(x).square().mean()

    done, _, check = rewritten(Loss(), ConcatQkv(training=True), torch.randn(2, 5, 8))
    assert len(done.applied) == 1
    assert check.ok, check.counterexample


def test_a_reader_that_cannot_take_a_view_gets_a_copy() -> None:
    """Flattening (2, 4) out of a wide row of 8 is no view."""

    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Any:
            return self.a(x).view(-1) + self.b(x).view(-1)

    done, _, check = rewritten(Flat(), ConcatQkv(), torch.randn(2, 4))
    assert targets(done.graph).count("aten.clone.default") == 2
    assert check.ok
