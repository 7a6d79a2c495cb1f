"""Sublinear memory (Chen et al. 2016): keep the borders of segments, drop what lies between, run segments
again.

The paper's chain of n layers is here the forward pass of a step. A *candidate* is a place after a forward op
where one activation alone leads on (an articulation point; the knob ``candidates`` allows borders of
several); activations that live through more than half of the forward pass (masks, positions) are kept and do
not count. Variants:
- ``sqrt`` keeps every k-th of |C| candidates, k = floor(sqrt |C|);
- ``greedy`` is the paper's budgeted walk (algorithm 3): bytes saved are summed up, and a candidate at which
  the sum exceeds the budget is kept;
- ``search`` (and ``greedy`` without a budget) tries budgets around b0 = sqrt(x y), x the bytes kept and y the
  largest segment of a first walk: the fastest plan that fits a device on which the step does not, else the
  smallest peak;
- ``recursive`` keeps k borders, and treats each part again in the same way (section 4.4);
- ``optimal`` reverses the chain with the fewest forward steps for a number of stored states (Griewank 1992).

Left open by the paper: the last segment is kept, its backward comes at once (knob); the state that
``optimal`` may store (the knob ``slots``; without it the most that fits the device); segments with random ops
run again from the first run's generator state; what an op makes that cannot run again (its parameter was
updated meanwhile, its input was overwritten) is kept. The algorithm knows no capacity: apart from the two
choices above the plan is the same on a device on which the step would fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.memory.interface import DeviceView, MemoryPlan, MemoryPolicy
from experiments.memory.planning.borders import (
    keep_by_budget,
    keep_every_kth,
    keep_most_states,
    search_budgets,
)
from experiments.memory.planning.chain import UnitChain, chain_of
from experiments.memory.planning.reversal import reverse_optimally, reverse_recursively
from experiments.workloads.step import Step


@dataclass(frozen=True)
class Checkpoint(MemoryPolicy):
    """Keeps segment borders, recomputes segments: O(sqrt n) memory for one extra forward pass."""

    name: ClassVar[str] = "checkpoint"
    mechanism: ClassVar[str] = "recompute"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")

    variant: str = knob(
        "sqrt", "how borders are chosen", choices=("sqrt", "greedy", "search", "recursive", "optimal")
    )
    budget: float | None = knob(
        None, "bytes between kept candidates (greedy); empty: searched", low=0.0, high=2.0**50, unit="bytes"
    )
    borders: int = knob(1, "borders kept at each level (recursive)", low=1, high=64)
    slots: int | None = knob(
        None, "states stored at once (optimal); empty: the most that fits", low=0, high=1000
    )
    candidates: int = knob(1, "most tensors in a border: 1 for articulation points", low=1, high=64)
    keep_last: bool = knob(True, "the last segment is not dropped")

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        chain = chain_of(step, self.candidates)
        if self.variant == "sqrt":
            return keep_every_kth(chain, self.keep_last)
        if self.variant == "recursive":
            return chain.plan(reverse_recursively(chain.units, self.borders), self.keep_last)
        if self.variant == "optimal":
            return self._most_states(chain, step, device)
        if self.variant == "greedy" and self.budget is not None:
            return keep_by_budget(chain, self.budget, self.keep_last)
        return search_budgets(chain, step, device, self.keep_last)

    def _most_states(self, chain: UnitChain, step: Step, device: DeviceView) -> MemoryPlan:
        """With the number of states given, or as many as fit."""
        if self.slots is None:
            return keep_most_states(chain, step, device, self.keep_last)
        return chain.plan(reverse_optimally(chain.units, min(self.slots, chain.units - 1)), self.keep_last)
