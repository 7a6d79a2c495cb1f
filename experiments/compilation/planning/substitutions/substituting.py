"""The search that policies by substitution rules have, and its knobs.

Where rules come from, what each must have shown, the search.

Rules are those of the workload's side file (``options.extra``: TASO's protobuf, FlexFlow's JSON), each judged
before it is used; else those that this lab's own generator found and judged (``generated``), with those of
``standard``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from experiments.compilation.interface import Graph, Rewritten, Workbench
from experiments.compilation.planning.substitutions.generated import generated_verdicts
from experiments.compilation.planning.substitutions.optimize import (
    WHOLE,
    Rulebook,
    Strategy,
    optimize_graph,
    rulebook,
)
from experiments.compilation.planning.substitutions.proof import PROVED, is_provable
from experiments.compilation.planning.substitutions.search import SearchLimits
from experiments.compilation.planning.substitutions.standard import standard_verdicts
from experiments.compilation.planning.substitutions.verdicts import RuleVerdict, verdicts
from experiments.core.knobs import knob
from experiments.core.progress import Progress, part, silent
from experiments.workloads.substitutions import Substitutions

TESTED, AND_PROVED = "tested", "tested and proved"
#: Share of the progress that judging rules takes.
JUDGING = 0.3


#: Knobs that policies with such a search no longer have, and what to do instead.
RETIRED: Mapping[str, str] = {
    "seconds": "it left out: a search ends at its number of graphs (knob builds), on every host alike"
}


def alpha_knob(default: float) -> Any:
    return knob(default, "a graph is followed below this many times the best cost", low=0.0, high=10.0)


def budget_knob() -> Any:
    return knob(1000, "graphs that are expanded; 0 applies no rule", low=0, high=10**6)


def verdict_knob() -> Any:
    return knob(
        TESTED, "what a rule must have shown; a proof needs Z3 and seconds", choices=(TESTED, AND_PROVED)
    )


def builds_knob() -> Any:
    return knob(100_000, "graphs that are built before the best so far is taken", low=1, high=10**9)


@dataclass(frozen=True)
class SubstitutionSearch:
    """A search by cost over the graphs that rules lead to.

    ``limits``    when a graph is followed and when the search ends.
    ``verdict``   what a rule must have shown, one of the knob's choices.
    ``strategy``  how a large graph is gone over.
    """

    limits: SearchLimits
    verdict: str = TESTED
    strategy: Strategy = WHOLE

    def rewrite(self, graph: Graph, bench: Workbench, training: bool) -> Rewritten:
        """Return the cheapest graph found; in ``training`` the graph as it is."""
        if training:
            reason = "the weights change in every step: nothing of them can be computed once"
            return Rewritten(graph, refused={"graph": reason})
        rules = rules_of(bench.rules, self.verdict == AND_PROVED, part(bench.progress, 0.0, JUDGING))
        searching = part(bench.progress, JUDGING, 1.0)
        return optimize_graph(graph, bench, rules, self.limits, self.strategy, searching)


def own_verdicts(prove: bool = False) -> tuple[RuleVerdict, ...]:
    """Return the rules that come with the lab.

    Those generated, and those with biases, which are too large to be generated.
    """
    return (*standard_verdicts(prove), *generated_verdicts())


def rules_of(
    file: Substitutions | None,
    prove: bool = False,
    progress: Progress = silent,
    own: Callable[[bool], Sequence[RuleVerdict]] = own_verdicts,
) -> Rulebook:
    """Return the rules of ``file``, else the ``own``, that may be applied.

    Tested, and with ``prove`` proved too.
    """
    if file is None:
        return _usable(own(prove), prove)
    kept = [rule for rule in file.rules if rule.parallel == "none"]
    book = _usable(verdicts(kept, is_provable if prove else None, progress), prove)
    moving = len(file.rules) - len(kept)
    return replace(
        book,
        refused={**book.refused, f"{moving} rules": "move data among devices"} if moving else book.refused,
    )


def _usable(found: Sequence[RuleVerdict], prove: bool) -> Rulebook:
    book = rulebook(found)
    without = {one.name: "not proved" for one in found if prove and one.proof != PROVED}
    kept = tuple(one for one in book.patterns if one.rule.name not in without)
    return Rulebook(kept, {**without, **book.refused})
