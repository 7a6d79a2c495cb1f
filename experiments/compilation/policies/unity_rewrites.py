"""The algebraic part of Unity (Unger et al., OSDI 2022).

Its substitutions that move no data among devices.

Rules: those of FlexFlow's file when it is the workload's side file (``options.extra``): 136 of its 640
compute only, of which those are used that bind what they read and pass the exact test; else the same as
``taso``'s. Graphs are cut behind post-dominators that no match crosses, as in the released code (section 5's
dynamic program over shardings has one state on one device, so that parts are independent), and searched with
its alpha of 1.2. Its budget is unbounded; here it is 1,000 graphs and 60 s. The other rules decide a
placement: see ``unity`` among the parallel policies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.compilation.planning.substitutions.optimize import Strategy
from experiments.compilation.planning.substitutions.strategies import ByDominators
from experiments.compilation.planning.substitutions.substituting import SubstitutionPolicy
from experiments.core.knobs import knob


@dataclass(frozen=True)
class UnityRewrites(SubstitutionPolicy):
    """Unity's search on one device: algebraic substitutions between post-dominators."""

    name: ClassVar[str] = "unity_rewrites"

    alpha: float = knob(1.2, "a graph is followed below this many times the best cost", low=0.0, high=10.0)
    threshold: int = knob(10, "terms of a part", low=2, high=10**6)

    def strategy(self) -> Strategy:
        return ByDominators(self.threshold)
