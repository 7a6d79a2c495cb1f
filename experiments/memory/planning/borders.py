"""Which states of a chain are kept as borders of segments (Chen et al. 2016), and the plans that follow.

``every_kth`` keeps every floor(sqrt |C|)-th of |C| candidates. ``walk`` is the paper's budgeted walk
(algorithm 3). ``search_budgets`` tries budgets around b0 = sqrt(x y), x the bytes kept and y the largest
segment of a first walk.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from experiments.memory.interface import DeviceView, MemoryPlan
from experiments.memory.planning.chain import UnitChain
from experiments.memory.planning.reversal import reverse_by_segments, reverse_optimally
from experiments.memory.planning.segments import greedy
from experiments.workloads.step import Step

#: Budgets that a search tries.
GRID = 8


def every_kth(chain: UnitChain) -> list[int]:
    """States after every k-th candidate, k = floor(sqrt |C|)."""
    count = len(chain.forward.candidates)
    k = max(1, math.isqrt(count))
    return [i + 1 for i in range(count) if (i + 1) % k == 0]


def walk(chain: UnitChain, budget: float) -> list[int]:
    """States kept by the budgeted walk."""
    at = {candidate.op: state for state, candidate in enumerate(chain.forward.candidates, 1)}
    return [at[op] for op in greedy(chain.forward.saved_bytes, list(at), budget)]


def budgets(chain: UnitChain) -> list[float]:
    """A geometric grid from b0 / sqrt 2 to b0 sqrt 2."""
    amounts = chain.forward.saved_bytes
    first = walk(chain, sum(amounts) / max(1, len(every_kth(chain))))
    borders = [chain.forward.candidates[state - 1] for state in first]
    edges = [0, *(border.op + 1 for border in borders), len(amounts)]
    size = chain.rematerializer.step.tensors.bytes
    kept = sum(int(size[tensor]) for border in borders for tensor in border.border)
    largest = max(sum(amounts[a:b]) for a, b in itertools.pairwise(edges))
    center = math.sqrt(max(1, kept) * max(1, largest))
    grid: list[float] = np.geomspace(center / math.sqrt(2), center * math.sqrt(2), GRID).tolist()
    return grid


def keep_every_kth(chain: UnitChain, keep_last: bool) -> MemoryPlan:
    """Return the plan that keeps ``every_kth`` state."""
    return chain.plan(reverse_by_segments(chain.units, every_kth(chain)), keep_last)


def keep_by_budget(chain: UnitChain, budget: float, keep_last: bool) -> MemoryPlan:
    """Return the plan that keeps the states of a ``walk``."""
    return chain.plan(reverse_by_segments(chain.units, walk(chain, budget)), keep_last)


def search_budgets(chain: UnitChain, step: Step, device: DeviceView, keep_last: bool) -> MemoryPlan:
    """Return the best of the plans for ``budgets``."""
    return _best([keep_by_budget(chain, budget, keep_last) for budget in budgets(chain)], step, device)


def keep_most_states(chain: UnitChain, step: Step, device: DeviceView, keep_last: bool) -> MemoryPlan:
    """Return the plan that stores a state for each unit, or half as many and so on until it fits."""
    if step.live_peak <= device.capacity:
        return MemoryPlan()
    plan = MemoryPlan()
    for slots in _halvings(chain.units - 1):
        plan = chain.plan(reverse_optimally(chain.units, slots), keep_last)
        if device.estimate(plan).fits:
            break
    return plan


def _halvings(most: int) -> list[int]:
    """``most``, half of it, and so on down to 0."""
    return [*dict.fromkeys(most >> shift for shift in range(most.bit_length())), 0]


def _best(plans: Sequence[MemoryPlan], step: Step, device: DeviceView) -> MemoryPlan:
    """The fastest that fits where the step alone does not; else the one with the smallest peak (ties: the
    first).
    """
    tried = [device.estimate(plan) for plan in plans]
    fitting = [i for i, estimate in enumerate(tried) if estimate.fits]
    if fitting and step.live_peak > device.capacity:
        return plans[min(fitting, key=lambda i: tried[i].step_time)]
    return plans[min(fitting or [0], key=lambda i: tried[i].peak_memory)]
