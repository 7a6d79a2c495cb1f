"""The search: compositions by the least time that they can take, until none left can beat the best.

A composition takes at least its passes, what it runs again, and the longer of the two sides of its update.
The coarse grid is tried in the order of these bounds; then the best is refined in ever smaller steps. What
cannot fit, were every copy out there at once, is not tried.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from experiments.core.budget import Budget
from experiments.memory.interface import DeviceView, MemoryPlan
from experiments.memory.interface.machine import PlanEstimate
from experiments.memory.policies.combined.composition import Composed, Composer, Composition

#: Steps of the coarse grid, of the update's parts on the host and of the activations dropped.
PARTS, SHARES = 4, 8
#: Shares of the capacity left free where a plan just fails to fit.
SPARE = (0.0, 0.01, 0.04)
#: By how much the load may exceed the capacity in words before it is not even tried.
TOLERANCE = 1.02


@dataclass(frozen=True)
class Found:
    """A plan that fits."""

    plan: MemoryPlan
    estimate: PlanEstimate
    composer: Composer
    composition: Composition
    composed: Composed


@dataclass
class Search:
    """The fastest plan for one number of micro-batches; ``smallest`` is the lowest peak that was met."""

    composer: Composer
    device: DeviceView
    splits: int
    budget: Budget
    best: Found | None = None
    smallest: int = 2**62
    trials: int = 0
    spare: int = 0
    seen: set[Composition] = field(default_factory=set)

    def run(self) -> None:
        if not self._states():
            self.smallest = self.composer.state.fewest_bytes
        for bound, composition in sorted(self._grid(), key=lambda entry: entry[0]):
            if self.is_beaten(bound) or not self._goes_on():
                break
            self.attempt(composition)
        if self.best and self.best.plan.splits == self.splits:
            self._refine()

    def is_beaten(self, bound: float) -> bool:
        """Whether nothing that takes ``bound`` seconds at least is of use."""
        return self.best is not None and bound >= self.best.estimate.step_time

    def least_seconds(self) -> float:
        """What any composition takes at least."""
        return min(self.composer.least_seconds(start) for start in self._states() or [Composition()])

    # --- the grid -------------------------------------------------------------------------------------------

    def _states(self) -> list[Composition]:
        """Places of the state whose persistent tensors fit the device."""
        state = self.composer.state
        counts = sorted({state.count_with(part / PARTS) for part in range(PARTS + 1)})
        choices = [(n, streamed) for n in counts for streamed in ((False, True) if n else (False,))]
        return [Composition(n, s) for n, s in choices if state.persistent_bytes(n, s) <= self.device.capacity]

    def _strides(self) -> list[int]:
        most = max(1, math.isqrt(self.composer.places))
        return [2**i for i in range(most.bit_length())]

    def _grid(self) -> Iterator[tuple[float, Composition]]:
        for start, stride in itertools.product(self._states(), self._strides()):
            most = self._most(stride)
            counts = sorted({most * share // SHARES for share in range(SHARES + 1)})
            for count in counts if stride == 1 else counts[1:]:
                composition = replace(start, stride=stride, dropped=count)
                self.device.progress(0.0, "")
                yield self.composer.least_seconds(composition), composition

    def _most(self, stride: int) -> int:
        return len(self.composer.passes[0].ranking(stride))

    # --- refinement -----------------------------------------------------------------------------------------

    def _refine(self) -> None:
        """Neighbors of the best, in steps half as large each time that none is better."""
        scale = 0.5
        while scale > 1 / 64:
            before = self.best
            for neighbor in self._neighbors(scale):
                if not self._goes_on():
                    return
                self.attempt(neighbor)
            if self.best is before:
                scale /= 2

    def _neighbors(self, scale: float) -> list[Composition]:
        assert self.best
        best = self.best.composition
        drop = max(1, round(scale * self._most(best.stride) / SHARES))
        host = max(1, round(scale * self.composer.state.count / PARTS))
        steps = ((-drop, 0), (drop, 0), (0, -host), (drop, -host), (-drop, host))
        moved = [(best.dropped + more, best.on_host + parts) for more, parts in steps]
        return [
            replace(best, dropped=dropped, on_host=on_host, streamed=best.streamed and on_host > 0)
            for dropped, on_host in moved
            if 0 <= dropped <= self._most(best.stride) and 0 <= on_host <= self.composer.state.count
        ]

    def keep_more(self) -> None:
        """Activations that need not be dropped after all, the most expensive first."""
        assert self.best
        best = self.best.composition
        ranking = self.composer.passes[0].ranking(best.stride)
        for place in sorted(range(best.dropped), key=lambda place: -ranking[place].seconds):
            if not self._goes_on():
                return
            assert self.best
            best = self.best.composition
            self.attempt(replace(best, except_for=best.except_for | {place}))

    def _goes_on(self) -> bool:
        return self.budget.take(1, f"{self.trials} plans tried in {self.splits} parts of the batch")

    # --- one composition ------------------------------------------------------------------------------------

    def attempt(self, composition: Composition) -> None:
        """Try it where it can be the best; with more bytes left free where it just fails to fit."""
        if composition in self.seen or self.is_beaten(self.composer.least_seconds(composition)):
            return
        self.seen.add(composition)
        for spare in range(self.spare, len(SPARE)):
            limit = int(self.device.capacity * (1 - SPARE[spare]))
            composed = self.composer.compose(composition, limit)
            if composed.peak > TOLERANCE * self.device.capacity:
                self.budget.spend(len(self.composer.step.ops) // 2)
                self.smallest = min(self.smallest, composed.peak)
                return
            if self._fits(composed, composition):
                self.spare = spare
                return

    def _fits(self, composed: Composed, composition: Composition) -> bool:
        """Carry it out in the simulator, and keep what is best or at least smallest."""
        plan = MemoryPlan(composed.moves, splits=self.splits)
        estimate = self.device.estimate(plan)
        self.trials += 1
        self.budget.spend(len(self.composer.step.ops))
        if estimate.fits:
            self._keep(Found(plan, estimate, self.composer, composition, composed))
        elif estimate.missing is not None:
            needed = self.device.capacity + int(estimate.missing)
            self.smallest = min(self.smallest, max(composed.peak, needed))
        return estimate.fits

    def _keep(self, found: Found) -> None:
        key = found.estimate.step_time, found.estimate.peak_memory
        if self.best is None or key < (self.best.estimate.step_time, self.best.estimate.peak_memory):
            self.best = found
