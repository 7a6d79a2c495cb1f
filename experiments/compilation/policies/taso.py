"""TASO (Jia et al., SOSP 2019).

A backtracking search over the graphs that generated substitutions lead to.

Rules: the 133 that TASO ships when its file is the workload's side file (``options.extra``), else those that
this lab's own generator found (``python -m experiments rules``); and those that TASO wrote by hand. The
published matcher applies a proved rule wherever operators fit; here a proof allows nothing, because its
axioms leave out what grouped convolutions need: each rule is tested exactly, again for other kernels and
ranks than its own, and used only where it is right. Costs are DAG costs of single ops. Left out: conv+relu
(ATen has no such op), and ``conv * y = conv`` of the released code, which drops y.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from experiments.compilation.interface import Graph, RewritePolicy, Rewritten, Workbench
from experiments.compilation.planning.substitutions.search import SearchLimits
from experiments.compilation.planning.substitutions.substituting import (
    RETIRED,
    SubstitutionSearch,
    alpha_knob,
    budget_knob,
    builds_knob,
    verdict_knob,
)


@dataclass(frozen=True)
class Taso(RewritePolicy):
    """Graph substitutions by cost; what depends on weights only is computed once."""

    name: ClassVar[str] = "taso"
    mechanism: ClassVar[str] = "rewrite the graph"
    takes_rules: ClassVar[bool] = True
    retired: ClassVar[Mapping[str, str]] = RETIRED

    alpha: float = alpha_knob(1.0)
    budget: int = budget_knob()
    verdict: str = verdict_knob()
    builds: int = builds_knob()

    def rewrite(self, graph: Graph, bench: Workbench) -> Rewritten:
        limits = SearchLimits(self.alpha, self.budget, builds=self.builds)
        search = SubstitutionSearch(limits, self.verdict)
        return search.rewrite(graph, bench, self.training)
