"""Equality saturation with egglog (Willsey et al., POPL 2021; Zhang et al., PLDI 2023; on tensor graphs:
TENSAT, Yang et al., MLSys 2021), an alternative to TASO's search with its rules.

All rewrites are kept at once in an e-graph, so that none shuts the door on another; the cheapest graph that
it holds is selected by an integer program over calls, each charged once (``extraction``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from experiments.compilation.interface import Graph, RewritePolicy, Rewritten, Workbench
from experiments.compilation.planning.substitutions.standard import standard_verdicts
from experiments.compilation.planning.substitutions.substituting import rules_of
from experiments.compilation.policies.egglog.optimize import saturate_graph
from experiments.compilation.policies.egglog.saturate import Bounds
from experiments.core.knobs import knob


@dataclass(frozen=True)
class Egglog(RewritePolicy):
    """Holds all rewrites of a graph at once and selects the cheapest one that they lead to."""

    name: ClassVar[str] = "egglog"
    mechanism: ClassVar[str] = "rewrite the graph"
    takes_rules: ClassVar[bool] = True
    retired: ClassVar[Mapping[str, str]] = {
        "seconds": "it left out: the e-graph stops growing at its bounds (knobs terms, matches and rounds)"
    }

    rounds: int = knob(64, "times that rules are applied to all that is there", low=1, high=1000)
    terms: int = knob(20_000, "terms at which the e-graph stops growing", low=100, high=1_000_000)
    matches: int = knob(1_000_000, "matches of rules that are looked at", low=1, high=10**9)
    nodes: int = knob(10_000, "branch-and-bound nodes of a selection", low=1, high=10**9)

    def rewrite(self, graph: Graph, bench: Workbench) -> Rewritten:
        bounds = Bounds(self.rounds, self.terms, self.matches, self.nodes)
        return saturate_graph(graph, bench, rules_of(bench.rules, own=standard_verdicts), bounds)
