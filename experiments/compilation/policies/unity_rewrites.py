"""The algebraic part of Unity (Unger et al., OSDI 2022).

Its substitutions that move no data among devices.

Rules: those of FlexFlow's file when it is the workload's side file (``options.extra``): 136 of its 640
compute only, of which those are used that bind what they read and pass the exact test; else the same as
``taso``'s. Graphs are cut behind post-dominators that no match crosses, as in the released code (section 5's
dynamic program over shardings has one state on one device, so that parts are independent), and searched with
its alpha of 1.2. Its budget is unbounded; here it is 1,000 graphs expanded and 100,000 built. The other
rules decide a placement: see ``unity`` among the parallel policies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from experiments.compilation.interface import Graph, RewritePolicy, Rewritten, Workbench
from experiments.compilation.planning.substitutions.search import SearchLimits
from experiments.compilation.planning.substitutions.strategies import ByDominators
from experiments.compilation.planning.substitutions.substituting import (
    RETIRED,
    SubstitutionSearch,
    alpha_knob,
    budget_knob,
    builds_knob,
    verdict_knob,
)
from experiments.core.knobs import knob


@dataclass(frozen=True)
class UnityRewrites(RewritePolicy):
    """Unity's search on one device: algebraic substitutions between post-dominators."""

    name: ClassVar[str] = "unity_rewrites"
    mechanism: ClassVar[str] = "rewrite the graph"
    takes_rules: ClassVar[bool] = True
    retired: ClassVar[Mapping[str, str]] = RETIRED

    alpha: float = alpha_knob(1.2)
    budget: int = budget_knob()
    verdict: str = verdict_knob()
    builds: int = builds_knob()
    threshold: int = knob(10, "terms of a part", low=2, high=10**6)

    def rewrite(self, graph: Graph, bench: Workbench) -> Rewritten:
        limits = SearchLimits(self.alpha, self.budget, builds=self.builds)
        search = SubstitutionSearch(limits, self.verdict, ByDominators(self.threshold))
        return search.rewrite(graph, bench, self.training)
