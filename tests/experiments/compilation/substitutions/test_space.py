"""The space on a small module: what a graph inherits is what it has, and costs predicted are costs found."""

from __future__ import annotations

import random

import torch
from torch import nn

from experiments.compilation.interface import Graph, Rewritten
from experiments.compilation.live.backends.base import Task
from experiments.compilation.live.costs import Bench, Roofline
from experiments.compilation.live.types import Inference
from experiments.compilation.planning.substitutions.graphs import Prices, TermGraph
from experiments.compilation.planning.substitutions.hard_coded import SPECIALS
from experiments.compilation.planning.substitutions.importing import import_graph
from experiments.compilation.planning.substitutions.matcher import Matcher
from experiments.compilation.planning.substitutions.optimize import rulebook
from experiments.compilation.planning.substitutions.rule_text import parse_rule
from experiments.compilation.planning.substitutions.space import RewriteSpace
from experiments.compilation.planning.substitutions.standard import standard_verdicts
from experiments.compilation.planning.substitutions.terms import Terms
from experiments.compilation.policies.metaflow import Metaflow
from experiments.compilation.policies.taso import Taso
from experiments.compilation.policies.unity_rewrites import UnityRewrites
from experiments.hardware import resolve
from experiments.workloads.substitutions import Substitutions
from tests.experiments.compilation.graphs import rewritten

CONV = "conv2d[kernel_h=3,kernel_w=3,stride_h=1,stride_w=1,pad=0]"


class Inception(nn.Module):
    """Three branches of one input, joined: convolutions of 1 and of 3, a batch norm, two linear layers on
    top.
    """

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(4, 4, k, padding=k // 2) for k in (1, 3, 1))
        self.norm = nn.BatchNorm2d(12)
        self.heads = nn.ModuleList(nn.Linear(12, width) for width in (3, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        joined = torch.cat([torch.relu(conv(x)) for conv in self.convs], 1)
        pooled = self.norm(joined).mean((2, 3))
        return torch.cat([head(pooled) for head in self.heads], 1)


class Grouped(nn.Module):
    """Two convolutions of four groups over one input, joined along their channels."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1, groups=groups, bias=False) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([conv(x) for conv in self.convs], 1)


def bench(rules: Substitutions | None = None) -> Bench:
    return Bench(Inference("cpu"), Roofline(resolve("v100-16g").device), rules=rules)


def exported(module: nn.Module, *inputs: torch.Tensor) -> Graph:
    return Task(module.eval(), inputs, "cpu", training=False).graph


def keys(space: RewriteSpace, state: TermGraph) -> dict[object, float]:
    return {
        (option.match.pattern.rule.name, tuple(number for _, number in option.match.bound)): option.added
        for option in space.options(state)
    }


def test_options_inherited_are_the_options_and_predicted_costs_are_the_costs() -> None:
    graph = exported(Inception(), torch.randn(2, 4, 8, 8))
    source = import_graph(graph, Terms(bench().types))
    prices = Prices(source.terms, graph, bench())
    matcher = Matcher(rulebook(standard_verdicts()).patterns, source.terms)
    space = RewriteSpace(prices, matcher, SPECIALS)
    state, rng = prices.graph(source.roots), random.Random(0)
    for _ in range(4):
        inherited = keys(space, state)
        fresh = keys(RewriteSpace(prices, matcher), state)
        assert inherited.keys() == fresh.keys()
        assert all(abs(inherited[key] - fresh[key]) < 1e-12 for key in fresh)
        built = [(successor.cost, successor.build()) for successor in space.successors(state, 1.0)]
        made = [(cost, found) for cost, found in built if found is not None]
        assert all(abs(cost - found.cost) < 1e-12 for cost, found in made)
        if not made:
            break
        state = rng.choice(made)[1]
    assert len(state.steps()) >= 2


def test_every_policy_finds_the_joined_convolutions_and_products_and_folds_what_is_constant() -> None:
    for policy in (Taso(budget=60), Metaflow(budget=60, threshold=8), UnityRewrites(budget=60)):
        found, _, checked = rewritten(Inception().eval(), policy, torch.randn(2, 4, 8, 8))
        assert checked.ok, checked.counterexample
        assert found.search["cost_after"] <= found.search["cost_before"]
    done = Taso(budget=60).rewrite(exported(Inception(), torch.randn(2, 4, 8, 8)), bench())
    assert done.search["cost_after"] < done.search["cost_before"]
    targets = [node.target for node in done.graph.ops if not node.once]
    assert targets.count("aten.conv2d.default") == 1 and targets.count("aten.linear.default") == 1
    pads = [node.once for node in done.graph.ops if node.target == "aten.constant_pad_nd.default"]
    assert pads and all(pads)  # filters are enlarged once


def test_a_rule_with_a_counterexample_is_not_applied_to_the_groups_where_it_is_wrong() -> None:
    text = f"concat[axis=-3]({CONV}(a, b), {CONV}(a, c)) => {CONV}(a, concat[axis=-4](b, c))"
    file = Substitutions("mine", (parse_rule(text, "join"),))

    def by(groups: int) -> Rewritten:
        graph = exported(Grouped(groups), torch.randn(1, 8, 6, 6))
        return Taso(budget=20).rewrite(graph, bench(file))

    assert [step.rule for step in by(1).applied] == ["join"]
    assert "join" not in {step.rule for step in by(4).applied}
    assert by(4).refused["join"] == "its exact test or guard fails for the shapes matched"


def test_weights_that_change_are_not_folded() -> None:
    found = Taso(training=True).rewrite(exported(Inception(), torch.randn(2, 4, 8, 8)), bench())
    assert not found.applied and "change in every step" in found.refused["graph"]


def test_ops_that_were_equal_may_both_be_gone() -> None:
    """The same layer asked twice is one product, which is then joined with another."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key = (nn.Linear(8, 8, bias=False) for _ in range(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.query(x) + self.key(x)) * torch.relu(self.query(x))

    module, inputs = Twice().eval(), torch.randn(4, 8)
    _, _, checked = rewritten(module, Taso(budget=20), inputs)
    assert checked.ok, checked.counterexample
    done = Taso(budget=20).rewrite(exported(module, inputs), bench())
    assert [node.target for node in done.graph.ops if not node.once].count("aten.linear.default") == 1
