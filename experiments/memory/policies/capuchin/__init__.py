"""Capuchin (Peng et al., ASPLOS 2020): swap what is hidden, then the cheaper of swap and recomputation, per
tensor.

1. The access list of a measured iteration: here the step's op times, from which waits are absent already (the
   paper runs one iteration in passive mode and subtracts them).
2. A candidate is a stretch between two accesses of a tensor that covers an op at which memory is full. Free
   time FT = (back access - swap time) - (end of the access before + swap time); per tensor the longest
   counts.
3. By FT, longest first: swaps while FT >= 0 and memory is still full somewhere. PCIe carries one transfer at
   a time, so FT is that of the whole set: ways out queue behind one another, ways back are as late as they
   can be.
4. Still full: by memory saving per second of recomputation (MSPS), each next tensor by the cheaper of what
   its swap adds to the set's negative FT and its rerun; choosing one updates the others through their lineage
   (``lineage_costs``). The swap times of 3 and 4 are those of the link alone, then twice and four times that
   (``CROWDED``): where many tensors leave, ops wait for their bytes, which FT does not see. The fastest plan
   of the three is taken.
5. A swap's way back begins at the last access that is a swap time before the back access, earlier where PCIe
   is taken (one transfer at a time), never where memory is full.
6. Feedback: where the tensor still arrives at its back access, its trigger moves 5 % of a swap time earlier,
   until the step is no faster. The plan with the fastest step is returned; the notes tell the first and the
   last time.

Left open by the paper: what is needed for a rerun while it is swapped out is fetched for it; a plan whose
reruns need more bytes than the estimate of memory says is drawn up anew for a smaller capacity (``MARGINS``).
Persistent tensors stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from experiments.core.knobs import knob
from experiments.memory.interface import (
    DeviceView,
    MemoryMove,
    MemoryPlan,
    MemoryPolicy,
    PlanEstimate,
    Recompute,
)
from experiments.memory.planning.rematerialize import Demand, Rematerializer
from experiments.memory.planning.swaps import (
    Gap,
    TensorSwap,
    UnstalledClock,
    gaps_of,
    lighten,
    moves_of,
    within,
)
from experiments.memory.policies.capuchin.lineage_costs import LineageCosts, Rerun
from experiments.memory.policies.capuchin.link_times import LinkTimes
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Step

#: Times by which a swap takes longer than the link alone would need. Shares of the capacity that are planned
#: for, one after the other, until a plan fits.
CROWDED = (1.0, 2.0, 4.0)
MARGINS = (1.0, 0.97, 0.94, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4)


@dataclass(frozen=True)
class Candidate:
    """A gap, the seconds that a swap out and back takes, and its free time."""

    gap: Gap
    free_time: float


@dataclass(frozen=True)
class Choice:
    """Gaps that are swapped and gaps that end in a rerun.

    ``load`` is the most bytes that an op then finds on the device.
    """

    swaps: tuple[Gap, ...]
    reruns: tuple[Gap, ...]
    load: int


class Planner:
    """Candidates and costs of one step on one machine."""

    def __init__(self, step: Step, device: DeviceView, hybrid: bool) -> None:
        self.step, self.machine, self.hybrid = step, device.machine, hybrid
        self.crowded = 1.0
        self.clock = UnstalledClock(step)
        self.remake = Rematerializer(step)
        self.gaps = [gap for gap in gaps_of(step) if not step.persistent[gap.tensor]]
        self._candidates = frozenset(gap.tensor for gap in self.gaps)
        self._last_use: list[int] = step.last_use.tolist()
        self._seconds: list[float] = step.ops.seconds.tolist()
        self._known: dict[Gap, Rerun | None] = {}

    def free_time(self, gap: Gap) -> float:
        idle = self.clock.idle(gap)
        return idle - self.out_time(gap) - self.back_time(gap)

    def out_time(self, gap: Gap) -> float:
        return self.crowded * self.machine.out_time(gap.bytes)

    def back_time(self, gap: Gap) -> float:
        return self.crowded * self.machine.back_time(gap.bytes)

    def candidates(self, capacity: int) -> list[Candidate]:
        """One per tensor, longest free time first (ties: the lowest tensor)."""
        over = np.concatenate(([0], np.cumsum(self.step.live_bytes > capacity))).tolist()
        best: dict[int, Candidate] = {}
        for gap in self.gaps:
            found = Candidate(gap, self.free_time(gap))
            covers = over[gap.before] > over[gap.after + 1]
            if covers and (gap.tensor not in best or found.free_time > best[gap.tensor].free_time):
                best[gap.tensor] = found
        return sorted(best.values(), key=lambda c: (-c.free_time, c.gap.tensor))

    def link(self) -> LinkTimes:
        """Return the link while nothing is swapped."""
        return LinkTimes(self.clock.start.tolist(), self.out_time, self.back_time)

    def choose(self, capacity: int) -> Choice:
        """Steps 3 and 4 of the paper's order."""
        load = self.step.live_bytes.copy()
        link = self.link()
        swaps: list[Gap] = []
        rest: list[Candidate] = []
        for candidate in self.candidates(capacity):
            hidden = candidate.free_time >= 0 and _relieves(load, candidate.gap, capacity)
            if hidden:
                link.add(candidate.gap)
            if hidden and link.overhead() <= 0:
                swaps.append(candidate.gap)
                lighten(load, TensorSwap(candidate.gap, candidate.gap.before))
                continue
            if hidden:
                link.remove(candidate.gap)
            rest.append(candidate)
        return self._by_cost(load, capacity, swaps, rest, link)

    def _by_cost(
        self, load: Ints, capacity: int, swaps: list[Gap], rest: Sequence[Candidate], link: LinkTimes
    ) -> Choice:
        costs = LineageCosts(self._reruns(rest) if self.hybrid else ())
        waiting = {candidate.gap.tensor: candidate for candidate in rest}
        reruns: list[Gap] = []
        paid = link.overhead()
        while waiting and load.max() > capacity:
            best = costs.best()
            tensor = best.tensor if best else next(iter(waiting))
            candidate = waiting.pop(tensor)
            if not _relieves(load, candidate.gap, capacity):
                costs.drop(tensor)
                continue
            lighten(load, TensorSwap(candidate.gap, candidate.gap.before))
            link.add(candidate.gap)
            swapped = link.overhead()
            if best and best.cost < swapped - paid:
                costs.choose(tensor)
                reruns.append(candidate.gap)
                link.remove(candidate.gap)
            else:
                costs.drop(tensor)
                swaps.append(candidate.gap)
                paid = swapped
        return Choice(tuple(swaps), tuple(reruns), int(load.max()))

    def _reruns(self, rest: Sequence[Candidate]) -> list[Rerun]:
        """Each candidate from its nearest sources that the step itself still needs by then."""
        found = (self._rerun_of(candidate.gap) for candidate in rest)
        return [rerun for rerun in found if rerun]

    def _rerun_of(self, gap: Gap) -> Rerun | None:
        """The rerun that ends ``gap``, the same for every choice; ``None`` where there is none.

        Of its sources those count that could leave themselves.
        """
        if gap not in self._known:
            last, seconds = self._last_use, self._seconds

            def present(tensor: int) -> bool:
                return tensor != gap.tensor and last[tensor] >= gap.before

            chain = self.remake.chain([gap.tensor], present, gap.before)
            sources = self._candidates.intersection(self.remake.lineage.external(chain.ops))
            cost = sum(seconds[op] for op in chain.ops)
            self._known[gap] = None if chain.stuck else Rerun(gap.tensor, gap.bytes, cost, sources)
        return self._known[gap]

    def plan(self, choice: Choice, capacity: int, earlier: Mapping[int, float]) -> MemoryPlan:
        """Return the moves for ``choice``.

        ``earlier`` are seconds that a tensor's way back begins sooner than it takes.
        """
        demands = [Demand(gap.before, (gap.tensor,)) for gap in choice.reruns]
        remade = self.remake.moves_for(demands)
        swaps = self._for_reruns(choice.swaps, remade)
        timed = [self._swap_for(gap, earlier.get(gap.tensor, 0.0)) for gap in swaps]
        drops = [TensorSwap(gap, gap.before, "drop") for gap in choice.reruns]
        fitted = [swap for swap in within(self.step, [*timed, *drops], capacity) if swap.tier != "drop"]
        moves = (*moves_of(fitted), *remade)
        return MemoryPlan(moves, notes={"swapped": len(fitted), "recomputed": len(choice.reruns)})

    def _for_reruns(self, gaps: Sequence[Gap], remade: Sequence[MemoryMove]) -> list[Gap]:
        """A tensor that a rerun reads, or makes a second time on its way, is back by then."""
        first: dict[int, list[int]] = {}
        for move in remade:
            ops = move.ops if isinstance(move, Recompute) else ()
            made = [tensor for op in ops for tensor in self.remake.lineage.writes[op]]
            for tensor in (*self.remake.lineage.external(ops), *made):
                first.setdefault(tensor, []).append(move.at)
        found = []
        for gap in gaps:
            at = min((a for a in first.get(gap.tensor, ()) if gap.after < a < gap.before), default=gap.before)
            if at > gap.after + 1:
                found.append(replace(gap, before=at))
        return found

    def _swap_for(self, gap: Gap, earlier: float) -> TensorSwap:
        time = self.machine.back_time(gap.bytes) + earlier
        return TensorSwap(gap, self.clock.walk_back(gap.before, time, min(gap.after + 2, gap.before)))


def _relieves(load: Ints, gap: Gap, capacity: int) -> bool:
    """Some op within ``gap`` finds memory full."""
    return bool((load[gap.after + 1 : gap.before] > capacity).any())


@dataclass(frozen=True)
class Capuchin(MemoryPolicy):
    """Chooses swap or recomputation per tensor from its access pattern, and corrects triggers by feedback."""

    name: ClassVar[str] = "capuchin"
    mechanism: ClassVar[str] = "offload and recompute"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")

    hybrid: bool = knob(True, "recompute as well as swap; false: swaps only")
    feedback: int = knob(20, "iterations that correct the triggers", low=0, high=200)
    share: float = knob(0.05, "share of a swap time by which a late trigger moves", low=0.0, high=1.0)

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        if step.live_peak <= device.capacity:
            return MemoryPlan()
        planner = Planner(step, device, self.hybrid)
        tried = [self._fitting(planner, crowded, device) for crowded in CROWDED]
        choice, plan, first = min(tried, key=lambda found: found[2].step_time)
        return self._correct(planner, choice, plan, first, device) if first.fits else plan

    def _fitting(
        self, planner: Planner, crowded: float, device: DeviceView
    ) -> tuple[Choice, MemoryPlan, PlanEstimate]:
        """The plan for the largest share of the capacity whose plan fits; the last one where none does."""
        planner.crowded = crowded
        for margin in MARGINS:
            choice = planner.choose(int(device.capacity * margin))
            plan = planner.plan(choice, device.capacity, {})
            tried = device.estimate(plan)
            if tried.fits or choice.load > device.capacity:
                break
        return choice, plan, tried

    def _correct(
        self, planner: Planner, choice: Choice, plan: MemoryPlan, first: PlanEstimate, device: DeviceView
    ) -> MemoryPlan:
        """Moves triggers while that makes the step faster."""
        best, tried, earlier = plan, first, dict[int, float]()
        rounds = 0
        for _ in range(self.feedback):
            swapped = {gap.tensor: gap for gap in choice.swaps}
            late = [tensor for tensor in tried.late if tensor in swapped]
            for tensor in late:
                swap = device.machine.back_time(swapped[tensor].bytes)
                earlier[tensor] = earlier.get(tensor, 0.0) + self.share * swap
            moved = planner.plan(choice, device.capacity, earlier)
            again = device.estimate(moved)
            if not late or not again.fits or again.step_time > tried.step_time:
                break
            best, tried, rounds = moved, again, rounds + 1
        times = {"first_step_time": first.step_time, "step_time": tried.step_time, "feedback_rounds": rounds}
        return replace(best, notes={**best.notes, **times})
