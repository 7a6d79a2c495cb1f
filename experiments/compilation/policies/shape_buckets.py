"""Shape buckets: a batch or sequence of any size is padded to the next of a few sizes that were compiled.

Serving systems document it (TensorRT-LLM, vLLM and TensorFlow Serving pad batches to sizes that were
prepared); the default is powers of two, ``b(n) = 2 ** ceil(log2(n))``. Padding must not reach a useful
result: it is followed through the graph, masked with the neutral element of whatever mixes entries (0 for
sums, products and batch statistics, -inf for softmax and maxima), and refused where an op cannot be masked.
Sizes of 0 are not run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.compilation.interface import Graph, Recipe, RecipePolicy
from experiments.compilation.interface.buckets import bucket_of, powers_of_two, sizes_from
from experiments.core.knobs import knob


@dataclass(frozen=True)
class ShapeBuckets(RecipePolicy):
    """Compiles a few sizes and pads every batch or sequence to the next of them."""

    name: ClassVar[str] = "shape_buckets"
    mechanism: ClassVar[str] = "compile or capture"

    axis: str = knob("batch", "what varies", choices=("batch", "sequence"))
    sizes: str = knob("1-64", 'sizes that are run, as "1-64" or "1,2,7"')
    buckets: str = knob("", "sizes that are compiled; empty: powers of two")
    compare: bool = knob(True, "count the graphs of static and of symbolic sizes too")
    timed: bool = knob(True, "time each size beside eager")

    def recipe(self, graph: Graph) -> Recipe:
        sizes = sizes_from(self.sizes, "knobs.sizes")
        buckets = sizes_from(self.buckets, "knobs.buckets") if self.buckets.strip() else powers_of_two(sizes)
        bucket_of(sizes[-1], buckets)
        options = {"axis": self.axis, "sizes": sizes, "buckets": buckets}
        return Recipe("buckets", {**options, "compare": self.compare, "timed": self.timed})
