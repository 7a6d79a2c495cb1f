"""AutoSwap with SmartPool (Zhang et al. 2019): swaps by priority over the peak of the load, addresses laid
out ahead.

The candidates are gaps around the op where the load is highest (persistent tensors' gaps around the step's
end too). Priority of a gap, the largest first, until the load keeps within the limit: DOA = idle time - time
of both copies; AOA = DOA * bytes, or DOA / bytes where DOA is negative; WDOA = sum over the ops of the gap of
(load - limit); SWDOA = WDOA on the load as the swaps taken so far leave it. ``ranks`` adds the ranks under
DOA, AOA and WDOA; ``tuned`` tries weighted sums of all four ranks in trials (random weights where the paper
uses Bayesian optimization). Copies out start as soon as the use is over and the lane is free, copies in as
late as they still come in time. With ``stick_to_limit`` computation waits where the limit would be broken;
with ``no_overhead`` only copies that fit overlapped with computation are taken, and the load falls only from
the end of the one to the start of the other.

SmartPool colors the tensors' lifetimes: the largest first, each into the first or best hole between those it
meets; persistent tensors lie at the bottom. The notes compare its size with an online best-fit pool and with
the load. Left open or ours: when the highest load is elsewhere, candidates around that op follow; a pool that
does not fit lowers the limit by what it lacks; a tensor that returns keeps its address.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from experiments.core.knobs import knob
from experiments.core.policy import SECONDS
from experiments.core.progress import Progress, silent
from experiments.memory.interface import DeviceView, MemoryMachine, MemoryPlan, MemoryPolicy, MemoryPool
from experiments.memory.planning.offsets import (
    load_bound,
    online,
    pack,
    packed_bytes,
    pool_bytes,
    stays_of,
)
from experiments.memory.planning.swaps import (
    Gap,
    TensorSwap,
    UnstalledClock,
    earliest_return,
    gaps_of,
    load_under,
    moves_of,
    within,
)
from experiments.memory.policies.autoswap.hidden_copies import copy_back_starts, copy_out_ends
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats, Step

SCORES = ("doa", "aoa", "wdoa", "swdoa", "ranks", "tuned")


@dataclass
class Selection:
    """Gaps taken one after another. ``weights`` are those of the ranks under DOA, AOA, WDOA and SWDOA."""

    step: Step
    machine: MemoryMachine
    limit: float
    weights: Sequence[float]
    hidden: bool
    progress: Progress = silent
    clock: UnstalledClock = field(init=False)
    gaps: list[Gap] = field(init=False)

    def __post_init__(self) -> None:
        self.clock = UnstalledClock(self.step)
        self.gaps = []

    def run(self, candidates: Sequence[Gap]) -> list[Gap]:
        """Take the best gap around the highest load until that is within the limit.

        Or until no gap is left there.
        """
        load, left = self.step.live_bytes.copy(), list(candidates)
        ranked = self._fixed_ranks(left, load)
        while load.max() > self.limit:
            self.progress(0.0, "")
            peak = int(load.argmax())
            around = [gap for gap in left if gap.crosses(peak)]
            if not around:
                break
            best = self._best(around, ranked, load)
            left.remove(best)
            if not self.hidden or self._stays_hidden(best):
                self.gaps.append(best)
                load = load_under(self.step, self.swaps())
        return self.gaps

    def swaps(self) -> list[TensorSwap]:
        """Return the gaps as swaps.

        Hidden ones are away from the end of one copy to the start of the other, others throughout.
        """
        if not self.hidden:
            return [TensorSwap(gap, gap.before) for gap in self.gaps]
        return [swap for swap, _ in self._hidden(self.gaps)]

    def _hidden(self, gaps: Sequence[Gap]) -> list[tuple[TensorSwap, bool]]:
        """Each swap as the load sees it, and whether its copies fit overlapped with computation."""
        out, back = (
            copy_out_ends(gaps, self.clock, self.machine),
            copy_back_starts(gaps, self.clock, self.machine),
        )
        start, found = self.clock.start, []
        for gap in gaps:
            leave = int(np.searchsorted(start, out[gap], side="left"))
            home = int(np.searchsorted(start, back[gap] + 1e-15, side="right")) - 1
            fits = leave <= len(start) - 1 and home >= (0 if gap.wraps else leave) and back[gap] >= 0
            found.append((TensorSwap(gap, home, leave=leave), fits))
        return found

    def _stays_hidden(self, gap: Gap) -> bool:
        return all(fits for _, fits in self._hidden([*self.gaps, gap]))

    def _fixed_ranks(self, gaps: Sequence[Gap], load: Ints) -> dict[Gap, float]:
        """The weighted ranks under the scores that do not depend on what has been taken."""
        total = np.zeros(len(gaps))
        for weight, values in zip(
            self.weights, scores(gaps, self.clock, self.machine, load, self.limit), strict=False
        ):
            total += weight * ranks(values)
        return dict(zip(gaps, total.tolist(), strict=True))

    def _best(self, gaps: Sequence[Gap], ranked: dict[Gap, float], load: Ints) -> Gap:
        """Highest rank; ties by the start of the gap and the tensor."""
        total = np.array([ranked[gap] for gap in gaps])
        if self.weights[3]:
            total = total + self.weights[3] * ranks(weighted_idle(gaps, load, self.limit))
        best = min(range(len(gaps)), key=lambda i: (-total[i], gaps[i].after, gaps[i].tensor))
        return gaps[best]


def scores(
    gaps: Sequence[Gap], clock: UnstalledClock, machine: MemoryMachine, load: Ints, limit: float
) -> tuple[Floats, Floats, Floats]:
    """DOA, AOA and WDOA of each gap."""
    idle = np.array([clock.idle(gap) for gap in gaps])
    copies = np.array([machine.out_time(gap.bytes) + machine.back_time(gap.bytes) for gap in gaps])
    doa, size = idle - copies, np.array([float(gap.bytes) for gap in gaps])
    aoa: Floats = np.where(doa >= 0, doa * size, doa / np.maximum(size, 1.0))
    return doa, aoa, weighted_idle(gaps, load, limit)


def weighted_idle(gaps: Sequence[Gap], load: Ints, limit: float) -> Floats:
    """For each gap the sum of (load - limit) over its ops."""
    total = np.concatenate(([0.0], np.cumsum(load - limit)))
    return np.array(
        [total[g.before] - total[g.after + 1] + (total[-1] if g.wraps else 0.0) for g in gaps], np.float64
    )


def ranks(values: Floats) -> Floats:
    """The rank of each value, 0 for the lowest; equal values have equal ranks."""
    return np.searchsorted(np.sort(values), values).astype(np.float64)


@dataclass(frozen=True)
class AutoSwap(MemoryPolicy):
    """Swaps by priority around the peak of the load (AutoSwap).

    Addresses come from a pool laid out ahead of time (SmartPool).
    """

    name: ClassVar[str] = "autoswap"
    mechanism: ClassVar[str] = "offload"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    effort: ClassVar[str] = SECONDS
    quick: ClassVar[Mapping[str, Any]] = {"trials": 4}

    score: str = knob("swdoa", "priority of a gap", choices=SCORES)
    mode: str = knob(
        "stick_to_limit", "what gives way: time or memory", choices=("stick_to_limit", "no_overhead")
    )
    limit: float | None = knob(
        None, "load to keep within; empty: the capacity", low=0.0, high=2.0**50, unit="bytes"
    )
    least_bytes: int = knob(2**20, "smaller tensors stay on the device", low=1, high=2**40, unit="bytes")
    pool: str = knob(
        "best_fit", "SmartPool's holes, or no addresses", choices=("first_fit", "best_fit", "none")
    )
    trials: int = knob(16, "weights tried by the tuned score", low=1, high=10_000)

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        if self.limit is None and step.live_peak <= device.capacity:
            return MemoryPlan()
        if self.score != "tuned":
            return self._within_pool(step, device, weights_of(self.score))
        drawn = device.random.random((self.trials, 4)).tolist()
        plans = [self._within_pool(step, device, weights) for weights in drawn]
        tried = [device.estimate(plan) for plan in plans]
        best = min(range(len(plans)), key=lambda i: (not tried[i].fits, tried[i].step_time, i))
        return plans[best]

    def _within_pool(self, step: Step, device: DeviceView, weights: Sequence[float]) -> MemoryPlan:
        """Swaps for the limit; a pool that then lacks bytes lowers it, at most eight times."""
        limit = device.capacity if self.limit is None else self.limit
        for _ in range(8):
            swaps = self._swaps(step, device, limit, weights)
            plan, lacking = self._plan_with_pool(step, swaps, device.capacity)
            if lacking <= 0 or not swaps:
                break
            limit -= lacking
        return plan

    def _swaps(
        self, step: Step, device: DeviceView, limit: float, weights: Sequence[float]
    ) -> list[TensorSwap]:
        hidden = self.mode == "no_overhead"
        selection = Selection(step, device.machine, limit, weights, hidden, device.progress)
        gaps = selection.run(gaps_of(step, self.least_bytes, wrapping=True))
        if hidden:
            return selection.swaps()
        start = selection.clock.start
        latest = copy_back_starts(gaps, selection.clock, device.machine)
        swaps = []
        for gap in gaps:
            home = int(np.searchsorted(start, max(0.0, latest[gap]), side="right")) - 1
            swaps.append(TensorSwap(gap, min(gap.before, max(home, earliest_return(gap)))))
        return within(step, swaps, int(limit))

    def _plan_with_pool(
        self, step: Step, swaps: Sequence[TensorSwap], capacity: int
    ) -> tuple[MemoryPlan, int]:
        """The plan with its pool, and the bytes that the pool lacks. Copies start at once,
        whenever they end.
        """
        notes: dict[str, Any] = {"swaps": len(swaps), "load": int(load_under(step, swaps).max())}
        moves = moves_of([replace(swap, leave=-1) for swap in swaps])
        if self.pool == "none":
            return MemoryPlan(moves, notes=notes), 0
        stays = stays_of(step, absences(step, swaps))
        addresses = pack(stays, self.pool, fixed=set(np.nonzero(step.persistent)[0].tolist()))
        size = packed_bytes(stays, addresses)
        notes |= {
            "smartpool_bytes": size,
            "best_fit_pool_bytes": pool_bytes(online(stays, 2**60, "best_fit")),
            "load_bound": load_bound(stays, len(step.ops)),
        }
        pool = MemoryPool("planned", offsets=tuple(sorted(addresses.items())))
        return MemoryPlan(moves, notes=notes, space=pool), size - capacity


def weights_of(score: str) -> tuple[float, float, float, float]:
    """A single score is a weight of one; ``ranks`` gives one to DOA, AOA and WDOA."""
    if score == "ranks":
        return 1.0, 1.0, 1.0, 0.0
    doa, aoa, wdoa, swdoa = (float(name == score) for name in SCORES[:4])
    return doa, aoa, wdoa, swdoa


def absences(step: Step, swaps: Sequence[TensorSwap]) -> dict[int, list[tuple[int, int]]]:
    """For each tensor the ops ``[start, end)`` for which it is away."""
    found: dict[int, list[tuple[int, int]]] = {}
    for swap in swaps:
        end = len(step.ops)
        spans = [(swap.out, end), (0, swap.back)] if swap.gap.wraps else [(swap.out, swap.back)]
        found.setdefault(swap.gap.tensor, []).extend(span for span in spans if span[0] < span[1])
    return found
