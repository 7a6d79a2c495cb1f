"""MetaFlow (Jia et al., SysML 2019).

Relaxed substitutions, and large graphs cut where few of them lie.

The search is TASO's, which came from it, with alpha 1.05: a graph that costs a little more is followed,
because it may lead to one that costs less. A graph of more than ``threshold`` terms is divided at minimum
cuts (section 5.2), each part is searched, then ``hops`` around each cut. The paper's own rules are
hand-written and not published; those of ``taso`` stand in. It leaves the threshold, the balance of a cut and
the window open: see ``rules.parts``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.compilation.planning.substitutions.optimize import Strategy
from experiments.compilation.planning.substitutions.strategies import ByFlow
from experiments.compilation.planning.substitutions.substituting import SubstitutionPolicy
from experiments.core.knobs import knob


@dataclass(frozen=True)
class Metaflow(SubstitutionPolicy):
    """Relaxed graph substitutions, part by part."""

    name: ClassVar[str] = "metaflow"

    alpha: float = knob(1.05, "a graph is followed below this many times the best cost", low=0.0, high=10.0)
    threshold: int = knob(30, "terms of a part", low=2, high=10**6)
    hops: int = knob(2, "terms around a cut that are searched again", low=0, high=100)

    def strategy(self) -> Strategy:
        return ByFlow(self.threshold, self.hops)
