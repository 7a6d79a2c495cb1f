"""moDNN (Chen et al., DATE 2018): what leaves is found by playing the schedule, with the batch in parts where
it must.

The ops are played in order against the capacity. Where an op does not fit, the tensors that are not used by
it and whose idle stretch covers it are candidates; the set that frees enough with the fewest bytes leaves
(ties: fewest tensors, then the farthest next use), all sets of up to twelve candidates, beyond that by next
use and size. Each leaves right after its last use before and comes back as late as the copy is still hidden,
where memory allows. The batch is cut in the fewest equal parts that give a schedule whose time is acceptable;
otherwise in those that are fastest. Left open by the paper: the time of a kernel on a part of the batch (see
``microbatch``). A step has one time an op, so the paper's choice among convolution algorithms has nothing to
choose from.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from experiments.core.errors import BadInput, Infeasible
from experiments.core.knobs import knob
from experiments.memory.interface import DeviceView, MemoryPlan, MemoryPolicy
from experiments.memory.planning.batch_parts import caveats, divisors
from experiments.memory.planning.swaps import (
    Gap,
    TensorSwap,
    UnstalledClock,
    earliest_return,
    gaps_of,
    lighten,
    moves_of,
    within,
)
from experiments.workloads.step import Step

#: Candidates of which every set is looked at.
ENUMERATED = 12


def leaving_set(candidates: Sequence[Gap], missing: int) -> tuple[Gap, ...]:
    """Return the gaps whose tensors leave so that ``missing`` bytes come free.

    All of them where that is not enough.
    """
    if len(candidates) > ENUMERATED:
        ranked = sorted(candidates, key=lambda gap: (-gap.before, -gap.bytes, gap.tensor))
        freed = itertools.accumulate(gap.bytes for gap in ranked)
        return tuple(ranked[: 1 + sum(1 for _ in itertools.takewhile(lambda total: total < missing, freed))])
    sizes = np.array([gap.bytes for gap in candidates], np.int64)
    masks = _masks(len(candidates))
    total, count = masks @ sizes, masks.sum(axis=1)
    enough = np.nonzero(total >= missing)[0]
    if not len(enough):
        return tuple(candidates)
    cheapest = enough[total[enough] == total[enough].min()]
    fewest = cheapest[count[cheapest] == count[cheapest].min()]
    return min((tuple(itertools.compress(candidates, masks[row])) for row in fewest.tolist()), key=_nearest)


@functools.cache
def _masks(count: int) -> npt.NDArray[np.int64]:
    """Every set of ``count`` things, a row of ones and zeros for each."""
    return (np.arange(2**count)[:, None] >> np.arange(count)) & 1


def _nearest(gaps: tuple[Gap, ...]) -> tuple[list[int], list[int]]:
    """Small for sets whose tensors are needed late."""
    return sorted((-gap.before for gap in gaps), reverse=True), [gap.tensor for gap in gaps]


def schedule(step: Step, capacity: int) -> list[Gap]:
    """The gaps that are spent away from the device so that every op finds free bytes, if any choice does."""
    load = step.live_bytes.copy()
    gaps = sorted(gaps_of(step), key=lambda gap: gap.after)
    chosen: list[Gap] = []
    open_gaps: list[Gap] = []
    upcoming = iter(gaps)
    following = next(upcoming, None)
    for op in range(len(step.ops)):
        while following is not None and following.after < op:
            open_gaps.append(following)
            following = next(upcoming, None)
        missing = int(load[op]) - capacity
        if missing <= 0:
            continue
        open_gaps = [gap for gap in open_gaps if gap.before > op]
        leaving = leaving_set(open_gaps, missing)
        for gap in leaving:
            lighten(load, TensorSwap(gap, gap.before))
        left = set(map(id, leaving))
        open_gaps = [gap for gap in open_gaps if id(gap) not in left]
        chosen += leaving
    return chosen


def plan_for(step: Step, device: DeviceView, parts: int) -> MemoryPlan:
    """The schedule of the step in ``parts``, as moves."""
    clock = UnstalledClock(step)
    swaps = [
        TensorSwap(
            gap, clock.walk_back(gap.before, device.machine.back_time(gap.bytes), earliest_return(gap))
        )
        for gap in schedule(step, device.capacity)
    ]
    moves = moves_of(within(step, [replace(swap, back=max(swap.back, 1)) for swap in swaps], device.capacity))
    notes = {"parts": parts, "offloads": len(swaps), **(caveats(step) if parts > 1 else {})}
    return MemoryPlan(moves, splits=parts, notes=notes)


@dataclass(frozen=True)
class Modnn(MemoryPolicy):
    """Offloads found by playing the schedule against the capacity.

    The batch is in the fewest parts that run well.
    """

    name: ClassVar[str] = "modnn"
    mechanism: ClassVar[str] = "offload"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    oversubscribes: ClassVar[bool] = True

    parts: int = knob(0, "equal parts of the batch; 0: the fewest with an acceptable time", low=0, high=2**20)
    acceptable: float = knob(
        1.5, "step time that is acceptable, over that of the whole batch", low=1.0, high=100.0
    )
    tried: int = knob(6, "most numbers of parts that are tried", low=1, high=64)

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        if step.live_peak <= device.capacity and self.parts in (0, 1):
            return MemoryPlan()
        found: list[tuple[float, MemoryPlan]] = []
        for parts in [self.parts] if self.parts else divisors(step)[: self.tried]:
            try:
                whole = device.split(parts)
            except BadInput:
                break
            plan = plan_for(whole, device, parts)
            seen = device.estimate(plan)
            if seen.fits:
                found.append((seen.step_time, plan))
            if seen.fits and seen.step_time <= self.acceptable * step.seconds:
                return plan
        if not found:
            raise Infeasible("no schedule exists, in no number of parts tried", "the whole step")
        return min(found, key=lambda entry: entry[0])[1]
