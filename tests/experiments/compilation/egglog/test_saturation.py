"""Equality saturation on small modules: what is proved equal, what is selected, and that it is never dearer
than search.
"""

from __future__ import annotations

from typing import Any

import pytest

from experiments.compilation.interface import Graph
from experiments.compilation.planning.substitutions.hard_coded import SPECIALS
from experiments.compilation.planning.substitutions.importing import import_graph
from experiments.compilation.planning.substitutions.optimize import optimize_graph, rulebook
from experiments.compilation.planning.substitutions.search import SearchLimits
from experiments.compilation.planning.substitutions.standard import standard_verdicts
from experiments.compilation.planning.substitutions.terms import Terms
from experiments.compilation.policies.egglog import Egglog
from experiments.compilation.policies.egglog.optimize import saturate_graph
from experiments.compilation.policies.egglog.saturate import Bounds, Saturation
from experiments.core.progress import silent
from experiments.hardware import resolve
from tests.experiments.compilation.graphs import rewritten, targets

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402


class Attention(nn.Module):
    """Three projections of one input, of unequal widths, one without a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return torch.softmax(self.q(x) @ self.k(x).transpose(-1, -2), -1) @ self.v(x)


class Tower(nn.Module):
    """Convolutions of one input with 1 and 3 as kernels, norms after them, and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (
            nn.Conv2d(4, 4, 3, padding=1),
            nn.Conv2d(4, 6, 3, padding=1),
            nn.Conv2d(4, 2, 1),
        )
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: Any) -> Any:
        return torch.cat([torch.relu(self.norm(self.a(x)) + x), self.b(x), self.c(x)], 1)


X = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
IMAGE = torch.randn(2, 4, 6, 6, generator=torch.Generator().manual_seed(0))


def graph_and_bench(module: Any, *inputs: Any) -> tuple[Graph, Any]:
    from experiments.compilation.live.backends.base import Task
    from experiments.compilation.live.costs import Bench, Roofline
    from experiments.compilation.live.types import Inference

    return Task(module.eval(), inputs, "cpu").graph, Bench(Inference(), Roofline(resolve("v100-16g").device))


def test_three_projections_are_proved_to_be_one_product_and_its_parts() -> None:
    graph, bench = graph_and_bench(Attention(), X)
    rules = rulebook(standard_verdicts())
    terms = Terms(bench.types)
    source = import_graph(graph, terms)
    saturation = Saturation(terms, rules.patterns)
    saturation.run(Bounds(), silent)
    assert not saturation.stopped  # nothing was left to apply
    q = next(number for ref, number in source.values.items() if ref.node == "linear")
    same = [n for n in range(len(terms)) if saturation.egraph.class_of(n) == saturation.egraph.class_of(q)]
    assert {terms[n].kind for n in same} == {
        "ew_add",
        "result",
    }  # product and bias, and parts of what holds more


@pytest.mark.parametrize(
    ("module", "inputs"), [(Attention(), X), (Tower(), IMAGE)], ids=["attention", "tower"]
)
def test_what_is_selected_is_right_and_never_dearer_than_what_the_search_finds(
    module: Any, inputs: Any
) -> None:
    graph, bench = graph_and_bench(module, inputs)
    rules = rulebook(standard_verdicts())
    ours = saturate_graph(graph, bench, rules, Bounds())
    theirs = optimize_graph(graph, bench, rules, SearchLimits(1.05, budget=30))
    assert ours.search["proved_cheapest"] and ours.search["saturated"]
    assert bench.cost(ours.graph) == pytest.approx(ours.search["cost_after"])
    assert bench.cost(ours.graph) <= bench.cost(theirs.graph) * (1 + 1e-9) < bench.cost(graph)
    verified = rewritten(module, Egglog(), inputs)[2]
    assert verified.ok


def test_one_product_is_left_of_three() -> None:
    graph, bench = graph_and_bench(Attention(), X)
    done = saturate_graph(graph, bench, rulebook(standard_verdicts()), Bounds())
    assert targets(graph).count("aten.linear.default") == 3
    assert targets(done.graph).count("aten.linear.default") == 1
    assert {step.rule for step in done.applied} == {"biased-linear-siblings"}
    assert {name for step in done.applied for name in step.took} == {"linear", "linear_1", "linear_2"}


class Fan(nn.Module):
    """Nine products of one input: 2^9 sets of them could be joined."""

    def __init__(self) -> None:
        super().__init__()
        self.paths = nn.ModuleList([nn.Linear(8, 4 + width) for width in range(9)])

    def forward(self, x: Any) -> Any:
        return torch.cat([torch.relu(path(x)) for path in self.paths], -1)


def test_many_products_of_one_input_become_one_without_all_their_subsets() -> None:
    graph, bench = graph_and_bench(Fan(), X)
    done = saturate_graph(graph, bench, rulebook(standard_verdicts()), Bounds())
    assert targets(done.graph).count("aten.linear.default") == 1
    assert done.search["saturated"] and done.search["terms"] < 1000
    joins = 9 * 8 // 2  # runs of neighbors; by two rules, with and without the biases
    assert done.search["rewrites"] == 2 * joins


class Joined(nn.Module):
    """Three products or convolutions of one input, joined in any order."""

    def __init__(self, order: tuple[int, ...], flat: bool) -> None:
        super().__init__()
        kinds = [nn.Linear(8, 8) if flat else nn.Conv2d(4, 4, 3, padding=1) for _ in range(3)]
        self.layers, self.order, self.dim = nn.ModuleList(kinds), order, -1 if flat else 1

    def forward(self, x: Any) -> Any:
        made = [layer(x) for layer in self.layers]
        return torch.cat([made[place] for place in self.order], self.dim)


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 2, 1), (2, 0, 1), (2, 1, 0)])
def test_what_is_joined_in_the_order_in_which_it_is_read_is_one_op(
    order: tuple[int, ...], flat: bool
) -> None:
    graph, bench = graph_and_bench(Joined(order, flat), X if flat else IMAGE)
    done = saturate_graph(graph, bench, rulebook(standard_verdicts()), Bounds())
    left = [
        target for target in targets(done.graph) if "linear" in target or "conv" in target or "cat" in target
    ]
    assert left == ["aten.linear.default" if flat else "aten.conv2d.default"]


def test_a_rewrite_that_gains_nothing_alone_is_there_for_the_next() -> None:
    """A convolution of two groups becomes one of one, more expensive group, and is then joined with the
    kernel of one next to it.
    """

    class Unlike(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide, self.one = nn.Conv2d(4, 4, 3, padding=1, groups=2), nn.Conv2d(4, 4, 1)

        def forward(self, x: Any) -> Any:
            return torch.cat((self.wide(x), self.one(x)), 1)

    graph, bench = graph_and_bench(Unlike(), IMAGE)
    done = saturate_graph(graph, bench, rulebook(standard_verdicts()), Bounds())
    assert targets(done.graph) == ["aten.conv2d.default"]
    assert [step.rule for step in done.applied if step.took] == ["merge group convs", "enlarge-merge"]


def test_equal_ops_are_one_and_what_is_constant_is_computed_once() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.scale = nn.Linear(8, 8), nn.Parameter(torch.randn(8))

        def forward(self, x: Any) -> Any:
            return (self.layer(x) * torch.exp(self.scale)).tanh() + torch.sigmoid(self.layer(x))

    graph, bench = graph_and_bench(Twice(), X)
    done = saturate_graph(graph, bench, rulebook(standard_verdicts()), Bounds())
    assert targets(done.graph).count("aten.linear.default") == 1
    assert "aten.exp.default" not in targets(done.graph) and done.exactness == "exact"
    assert done.search["cost_after"] < done.search["cost_before"]


def test_a_graph_without_matches_stays_the_very_graph() -> None:
    graph, bench = graph_and_bench(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), X)
    done = saturate_graph(graph, bench, rulebook(standard_verdicts()), Bounds())
    assert done.graph == graph and not done.applied


def test_a_bound_on_terms_stops_the_growth_and_is_told() -> None:
    graph, bench = graph_and_bench(Attention(), X)
    done = saturate_graph(graph, bench, rulebook(standard_verdicts()), Bounds(terms=1))
    assert done.graph == graph and not done.search["saturated"]


def test_a_stop_stays_told_when_hard_coded_rules_go_on() -> None:
    """What was left when the bound was met is left for good: later rounds without matches do not saturate."""
    graph, bench = graph_and_bench(Tower(), IMAGE)
    rules = rulebook(standard_verdicts())
    source = import_graph(graph, Terms(bench.types))
    saturation = Saturation(source.terms, rules.patterns)
    saturation.run(Bounds(terms=1), silent)
    saturation.run(Bounds(), silent)
    assert saturation.stopped == "terms" and not saturation.summary()["saturated"]


def test_hard_coded_rules_see_what_was_selected() -> None:
    """The norm is folded first; only then its convolution has a bias and can join its sibling."""
    assert len(SPECIALS) == 3
    graph, bench = graph_and_bench(Tower(), IMAGE)
    done = saturate_graph(graph, bench, rulebook(standard_verdicts()), Bounds())
    rules = [step.rule for step in done.applied]
    assert rules.index("conv+bn") < rules.index("biased-conv-siblings")
    assert targets(done.graph).count("aten.conv2d.default") <= 2
