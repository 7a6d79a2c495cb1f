"""Guards (Ansel et al., ASPLOS 2024, sections 3 and 5).

Compiled code holds while its guards do, and is else recompiled.

Every size is a guard of its own where sizes are static. Automatic: the first size that differs makes it a
symbol. Symbolic: from the start. Marked: only the axis in question, by ``mark_dynamic``. Sizes 0 and 1 are
always compiled for themselves. Piecewise, as vLLM's documentation describes it: the graph is cut at attention
and at what depends on data, the pieces are compiled once for any size, the cuts run eagerly. What is left
open: a function compiled ``limit`` times runs eagerly from then on, where torch's own default is 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.compilation.interface import Graph, Recipe, RecipePolicy
from experiments.compilation.interface.buckets import sizes_from
from experiments.core.knobs import knob


@dataclass(frozen=True)
class Guards(RecipePolicy):
    """Compiles a model as its sizes come, again where a guard fails, and counts the graphs."""

    name: ClassVar[str] = "guards"
    mechanism: ClassVar[str] = "compile or capture"

    variant: str = knob(
        "automatic",
        "how sizes are treated",
        choices=("static", "automatic", "symbolic", "marked", "piecewise"),
    )
    axis: str = knob("batch", "what varies", choices=("batch", "sequence"))
    sizes: str = knob("1-64", 'sizes that are run in order, as "1-64" or "1,2,7"')
    limit: int = knob(256, "times that a function is compiled before it runs eagerly", low=1, high=4096)
    compare: bool = knob(True, "count the graphs of the other variants too")
    timed: bool = knob(True, "time each size beside eager")

    def recipe(self, graph: Graph) -> Recipe:
        sizes = sizes_from(self.sizes, "knobs.sizes")
        options = {"variant": self.variant, "axis": self.axis, "sizes": sizes, "limit": self.limit}
        return Recipe("guards", {**options, "compare": self.compare, "timed": self.timed})
