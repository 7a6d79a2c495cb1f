"""Random small models through export, records, every exact or reassociating rewrite of ours and back, in
float64.

A model is a list of steps over a pool of tensors: each takes one that fits, and adds what it makes. It is
called three times, with other inputs and a counter that changes, and the caller writes to what it got.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from experiments.compilation.interface import GraphNode, RewritePolicy, violations
from experiments.compilation.live.costs import Bench, NodeWork
from experiments.compilation.live.exactness import exact_places
from experiments.compilation.live.export import export, records
from experiments.compilation.live.lower import lower
from experiments.compilation.live.types import Inference
from experiments.compilation.policies.concat_qkv import ConcatQkv
from experiments.compilation.policies.constant_folding import ConstantFolding
from experiments.compilation.policies.cse import Cse
from experiments.compilation.policies.dce import Dce
from experiments.compilation.policies.fuse_conv_bn import FuseConvBn
from experiments.compilation.policies.fuse_matmul_add import FuseMatmulAdd
from experiments.core import registry

pytestmark = pytest.mark.torch

WIDTH = 4
Step = tuple[str, int]


class Parts(nn.Module):
    """What the steps share: layers (two of them tied), a convolution with its norm, weights, and
    a counter.
    """

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, width, bias=width < 5) for width in (4, 2, 6, 4))
        self.layers.append(nn.Linear(WIDTH, WIDTH, bias=False))
        self.layers[4].weight = self.layers[3].weight
        self.convolution = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(WIDTH)
        self.norm.running_mean = torch.randn(WIDTH)
        self.norm.running_var = torch.rand(WIDTH) + 0.5
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH))
        self.vector = nn.Parameter(torch.randn(WIDTH))
        self.register_buffer("calls", torch.ones(()))


def written(x: Tensor) -> Tensor:
    """A copy, changed through a view of it."""
    copy = x.clone(memory_format=torch.contiguous_format)  # a view of all of it is not of what is transposed
    copy.view(-1)[:2].mul_(-2)
    return copy.add_(1)


def several(x: Tensor) -> list[Tensor]:
    ordered, places = x.sort(-1)
    return [ordered, places.double(), *torch.split(x, [1, x.shape[-1] - 1], -1)]


def counted(m: Parts, x: Tensor) -> Tensor:
    """The counter before and after it is written to."""
    before = m.calls * 2
    m.calls.add_(1)
    return x * before + m.calls


def folded(m: Parts, x: Tensor) -> Tensor:
    made: Tensor = m.norm(m.convolution(x.sum(-1)[..., None, None].expand(2, WIDTH, 3, 3)))
    return made


STEPS: dict[str, Callable[[Parts, Tensor], Any]] = {
    "elementwise": lambda m, x: torch.relu(x) * torch.tanh(x),
    "twice the same": lambda m, x: [x * 2 + 1, (x * 2 + 1) * (x * 2 + 1)],
    "linears": lambda m, x: [layer(x) for layer in m.layers[:3]],
    "tied linears": lambda m, x: [m.layers[3](x), m.layers[4](x)],
    "linear and view": lambda m, x: [m.layers[0](x).view(-1), m.layers[1](x).transpose(0, -1)],
    "product and vector": lambda m, x: x @ m.weight + m.vector,
    "product and constant": lambda m, x: torch.ones(WIDTH, dtype=x.dtype) + x @ m.weight.t(),
    "product and itself": lambda m, x: x @ m.weight + x,
    "weights": lambda m, x: [m.weight.exp() @ m.vector, m.weight.t() * 2],
    "constants": lambda m, x: [torch.full((2, WIDTH), 3.0, dtype=x.dtype), torch.ones(2, 2, dtype=x.dtype)],
    "in place": lambda m, x: written(x),
    "several": lambda m, x: several(x),
    "views": lambda m, x: [x.transpose(0, -1), x[..., ::2], x.reshape(-1)],
    "softmax": lambda m, x: x.softmax(-1),
    "random": lambda m, x: x + torch.rand_like(x) - torch.rand_like(x),
    "counter": counted,
    "batch norm": lambda m, x: folded(m, x) if tuple(x.shape[:2]) == (2, WIDTH) and x.dim() > 2 else x,
    "joined": lambda m, x: torch.cat([x, x + 1], 0),
}


class Drawn(Parts):
    def __init__(self, steps: Sequence[Step], outputs: int) -> None:
        super().__init__()
        self.steps, self.outputs = steps, outputs

    def forward(self, x: Tensor) -> Any:
        pool, drawn = [x], []
        for name, choice in self.steps:
            wide = [one for one in pool if one.dim() > 1 and one.shape[-1] == WIDTH]
            made = STEPS[name](self, wide[choice % len(wide)])
            pool += made if isinstance(made, list) else [made]
            # torch's exporter drops numbers that nobody reads, and those after them are others then.
            drawn += [made] if name == "random" else []
        return {"last": pool[-1], "others": pool[-1 - self.outputs : -1], "drawn": drawn}


class Drawing:
    """Prices at random, the same for the same op: what a rewrite gains is not the question here."""

    def seconds(self, node: GraphNode, arguments: Any, keywords: Any, work: NodeWork) -> float:
        return random.Random(repr((node.target, arguments))).random()


def called(call: Callable[..., Any], x: Tensor) -> list[Tensor]:
    """Results of three calls. What the caller owns is written to between them."""
    found = []
    for number in range(3):
        torch.manual_seed(number)
        with torch.no_grad():
            leaves = torch.utils._pytree.tree_leaves(call(x + number))
        found += [leaf.clone() for leaf in leaves]
        for leaf in leaves:
            if leaf.is_contiguous() and leaf.untyped_storage().data_ptr() != x.untyped_storage().data_ptr():
                leaf.zero_()
    return found


POLICIES: tuple[RewritePolicy, ...] = (
    Cse(),
    Dce(),
    ConstantFolding(),
    FuseMatmulAdd(),
    ConcatQkv(),
    FuseConvBn(),
)
STRATEGY = {
    "steps": st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 99)), min_size=2, max_size=5),
    "outputs": st.integers(0, 3),
    "order": st.permutations(POLICIES),
    "shape": st.sampled_from([(2, WIDTH), (2, WIDTH, WIDTH)]),
}


@settings(max_examples=6, deadline=None)
@given(**STRATEGY)
@example([("random", 0), ("random", 0)], 0, list(POLICIES), (2, WIDTH))
def test_a_random_model_computes_the_same_after_every_rewrite(
    steps: list[Step], outputs: int, order: list[RewritePolicy], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    module = Drawn(steps, outputs).double().eval().requires_grad_(False)
    x = torch.randn(shape, dtype=torch.float64)
    origin = export(module, (x,))
    graph, bench = records(origin), Bench(Inference(), Drawing())
    truth = called(module, x)
    for policy in order:
        done = policy.rewrite(graph, bench)
        assert violations(done.graph, graph) == []
        if "calls" in dict(origin.named_buffers()):
            origin.get_buffer("calls").fill_(1)
        for ours, theirs in zip(called(lower(done.graph, origin), x), truth, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
        if done.exactness == "exact":
            assert exact_places(graph, done.graph, "cpu", 0)[1] == ""
        graph = done.graph


def test_products_that_are_computed_once_stay_so_under_later_rewrites() -> None:
    """Linear layers of a constant are folded, and a view of one with it: nothing may join them again."""
    names = ("constant_folding", "fuse_matmul_add", "concat_qkv")
    order = [policy for name in names for policy in [registry.create("compilation", name, {})]]
    test_a_random_model_computes_the_same_after_every_rewrite.hypothesis.inner_test(  # type: ignore[attr-defined]
        [("constants", 0), ("linear and view", 1)], 1, order, (2, 4)
    )
