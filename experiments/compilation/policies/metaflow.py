"""MetaFlow (Jia et al., SysML 2019).

Relaxed substitutions, and large graphs cut where few of them lie.

The search is TASO's, which came from it, with alpha 1.05: a graph that costs a little more is followed,
because it may lead to one that costs less. A graph of more than ``threshold`` terms is divided at minimum
cuts (section 5.2), each part is searched, then ``hops`` around each cut. The paper's own rules are
hand-written and not published; those of ``taso`` stand in. It leaves the threshold, the balance of a cut and
the window open: see ``rules.parts``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from experiments.compilation.interface import Graph, RewritePolicy, Rewritten, Workbench
from experiments.compilation.planning.substitutions.search import SearchLimits
from experiments.compilation.planning.substitutions.strategies import ByFlow
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
class Metaflow(RewritePolicy):
    """Relaxed graph substitutions, part by part."""

    name: ClassVar[str] = "metaflow"
    mechanism: ClassVar[str] = "rewrite the graph"
    takes_rules: ClassVar[bool] = True
    retired: ClassVar[Mapping[str, str]] = RETIRED

    alpha: float = alpha_knob(1.05)
    budget: int = budget_knob()
    verdict: str = verdict_knob()
    builds: int = builds_knob()
    threshold: int = knob(30, "terms of a part", low=2, high=10**6)
    hops: int = knob(2, "terms around a cut that are searched again", low=0, high=100)

    def rewrite(self, graph: Graph, bench: Workbench) -> Rewritten:
        limits = SearchLimits(self.alpha, self.budget, builds=self.builds)
        search = SubstitutionSearch(limits, self.verdict, ByFlow(self.threshold, self.hops))
        return search.rewrite(graph, bench, self.training)
