"""Policies that search, on drawn modules of branches, shared and equal layers: they stay right, and
saturation is never dearer than the search. Rewrites of one kind each are drawn for in ``test_random_models``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from experiments.compilation.live.backends.base import Compiled, Task  # noqa: E402
from experiments.compilation.live.costs import Bench, Roofline  # noqa: E402
from experiments.compilation.live.lower import lower  # noqa: E402
from experiments.compilation.live.types import Inference  # noqa: E402
from experiments.compilation.live.verify import verify  # noqa: E402
from experiments.compilation.planning.substitutions.optimize import optimize_graph, rulebook  # noqa: E402
from experiments.compilation.planning.substitutions.search import SearchLimits  # noqa: E402
from experiments.compilation.planning.substitutions.standard import standard_verdicts  # noqa: E402
from experiments.compilation.policies.egglog.optimize import saturate_graph  # noqa: E402
from experiments.compilation.policies.egglog.saturate import Bounds  # noqa: E402
from experiments.core import registry  # noqa: E402
from experiments.hardware import resolve  # noqa: E402

pytestmark = pytest.mark.torch

POLICIES: dict[str, dict[str, Any]] = {
    "pet": {},
    "taso": {"budget": 12},
    "metaflow": {"budget": 12, "threshold": 6},
    "unity_rewrites": {"budget": 12},
    "egglog": {"terms": 2000, "nodes": 200},
}
#: One step: what is done, and of what: numbers that choose among the values made so far, and among the
#: layers.
Step = tuple[str, int, int, int]


class Drawn(nn.Module):
    """Values of ``width`` channels (images) or features (rows), made step by step; layers are few, so that
    some are shared.
    """

    def __init__(self, steps: list[Step], images: bool, reads: list[int]) -> None:
        super().__init__()
        self.steps, self.images, self.reads = steps, images, reads
        width = 4
        if images:
            kernels = ((1, 1, True), (3, 1, True), (3, 2, False), (1, 1, False))
            self.layers = nn.ModuleList(
                nn.Conv2d(width, width, k, padding=k // 2, groups=groups, bias=bias)
                for k, groups, bias in kernels
            )
            self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))
        else:
            self.layers = nn.ModuleList(nn.Linear(width, width, bias=number % 2 == 0) for number in range(4))
            self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.scale = nn.Parameter(torch.randn(width, 1, 1) if images else torch.randn(width))

    def forward(self, x: Tensor) -> Tensor:
        values = [x]
        for what, first, second, layer in self.steps:
            one, other = values[first % len(values)], values[second % len(values)]
            values.append(self._made(what, one, other, layer))
        return torch.cat([values[number % len(values)] for number in (*self.reads, -1)], 1)

    def _made(self, what: str, one: Tensor, other: Tensor, layer: int) -> Tensor:
        made: dict[str, Callable[[], Tensor]] = {
            "layer": lambda: self.layers[layer % 4](one),
            "norm": lambda: self.norms[layer % 2](one),
            "relu": lambda: torch.relu(one),
            "add": lambda: one + other,
            "mul": lambda: one * other,
            "scale": lambda: one * torch.exp(self.scale),
            "in place": lambda: F.relu(one.clone(), inplace=True),
            "both": lambda: self._half(torch.cat((one, other), 1)),
            "product": lambda: one @ other.transpose(-1, -2) @ one,
        }
        return made[what]()

    def _half(self, both: Tensor) -> Tensor:
        return both[:, 2:6]


def drawn(steps: list[Step], images: bool, reads: list[int]) -> Task:
    torch.manual_seed(0)
    module = Drawn(steps, images, reads).eval().requires_grad_(False)
    return Task(module, (torch.randn(2, 4, 5, 5) if images else torch.randn(3, 4),), "cpu")


def bench() -> Bench:
    return Bench(Inference(), Roofline(resolve("v100-16g").device))


WHATS = ("layer", "layer", "layer", "norm", "relu", "add", "mul", "scale", "in place", "both", "product")
NUMBERS = st.integers(0, 7)


STEPS = st.lists(st.tuples(st.sampled_from(WHATS), NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=9)


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, st.booleans(), st.lists(NUMBERS, max_size=2), st.sampled_from(sorted(POLICIES)))
def test_what_a_policy_makes_of_any_module_is_right(
    steps: list[Step], images: bool, reads: list[int], name: str
) -> None:
    policy: Any = registry.create("compilation", name, POLICIES[name])
    task = drawn(steps, images, reads)
    done = policy.rewrite(task.graph, bench())
    found = verify(task, Compiled(lower(done.graph, task.origin), 0.0, 0.0), 0)
    assert found.ok, found.counterexample


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, st.booleans(), st.lists(NUMBERS, max_size=2))
def test_saturation_is_never_dearer_than_the_search_by_the_same_rules(
    steps: list[Step], images: bool, reads: list[int]
) -> None:
    graph, rules = drawn(steps, images, reads).graph, rulebook(standard_verdicts())
    held = saturate_graph(graph, bench(), rules, Bounds())
    assume(held.search["proved_cheapest"] and held.search["saturated"])
    searched = optimize_graph(graph, bench(), rules, SearchLimits(budget=30, alpha=1.05))
    assert held.search["cost_after"] <= searched.search["cost_after"] * (1 + 1e-9)
