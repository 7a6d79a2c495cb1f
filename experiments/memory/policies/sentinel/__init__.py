"""Sentinel (Ren et al., HPCA 2021): tensors migrate at intervals of K layers, and K is searched.

A layer is a forward op that is not a view, its stretch of the backward pass, or an op of the optimizer.
*Short-lived* tensors live within one layer and stay on the device, which reserves their peak (RS). The step
is cut into intervals of K layers. When interval j begins, long-lived tensors that j + 1 uses are fetched, and
those that neither j nor j + 1 uses leave. K must leave bytes for the tensors of two intervals in addition to
RS; the K with the least exposed migration, sum over j of max(0, bytes fetched for j + 1 / bandwidth - time of
j), plus the cost of a synchronization for each interval wins, the smaller of equals.

Where the machine has memory that ops can use in place (``remote``) it is the slow memory, and tensors whose
migration is late are left there if that costs less and a trial agrees. Elsewhere the host is, and waiting is
all there is. Left open by the paper: K is tried exhaustively; tensors are not packed into pages. Where no K
has free bytes, K is 1, everything leaves after its use and returns when there are free bytes, and the least
used tensors stay in slow memory.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from experiments.core.knobs import knob
from experiments.memory.interface import (
    DeviceView,
    MemoryMachine,
    MemoryPlan,
    MemoryPolicy,
)
from experiments.memory.planning.in_place import access_in_place, uses_in_place
from experiments.memory.planning.swaps import TensorSwap, load_under, moves_of, within
from experiments.memory.policies.sentinel.intervals import Intervals, layer_starts
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Step

MICROSECOND = 1e-6
#: Tensors are left in slow memory by so many.
STRIDE = 16


@dataclass(frozen=True)
class Sentinel(MemoryPolicy):
    """Long-lived tensors migrate at intervals of K layers, K found by search; short-lived ones stay."""

    name: ClassVar[str] = "sentinel"
    mechanism: ClassVar[str] = "offload"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")

    interval: int | None = knob(None, "layers of an interval; empty: searched", low=1, high=100_000)
    sync_microseconds: float = knob(
        50.0, "what the search counts for the synchronization of an interval", low=0.0, high=1e6, unit="us"
    )
    least_bytes: int = knob(2**16, "smaller tensors stay on the device", low=1, high=2**40, unit="bytes")

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        machine = device.machine
        if step.live_peak <= machine.capacity:
            return MemoryPlan()
        intervals = Intervals(step, layer_starts(step), self.least_bytes)
        layers, cost = self.best_interval(intervals, machine)
        tier = slow_tier(machine)
        swaps = intervals.all_swaps(tier) if cost is None else intervals.swaps(layers, tier)
        planner = Planner(intervals, machine, swaps)
        notes = {"interval": layers, "layers": intervals.layers, "expected_cost": cost}
        slow = planner.pick_least_used() if machine.remote_bytes else ()
        waiting = planner.plan(slow, notes)
        if not machine.remote_bytes:
            return waiting
        trial = device.estimate(waiting)
        leaving = planner.plan({*slow, *planner.better_slow(trial.late)}, notes)
        return leaving if device.estimate(leaving).step_time < trial.step_time else waiting

    def best_interval(self, intervals: Intervals, machine: MemoryMachine) -> tuple[int, float | None]:
        """The K of least cost among those that fit, and that cost; 1 and no cost where none has."""
        candidates = [self.interval] if self.interval else range(1, intervals.layers + 1)
        costs = [(self.cost(intervals, layers, machine), layers) for layers in candidates]
        cost, layers = min(costs)
        return (layers, cost) if math.isfinite(cost) else (self.interval or 1, None)

    def cost(self, intervals: Intervals, layers: int, machine: MemoryMachine) -> float:
        """Return the exposed migration and synchronization in seconds.

        Infinite where two intervals have no free bytes.
        """
        cut = intervals.cut(layers)
        resident = cut.used + np.roll(cut.used, -1) if len(cut.used) > 1 else cut.used
        if int(resident.max(initial=0)) > machine.capacity - intervals.reserved:
            return math.inf
        tier = slow_tier(machine)
        fetching = np.array([machine.back_time(size, tier) if size else 0.0 for size in cut.fetched.tolist()])
        exposed = np.maximum(0.0, np.roll(fetching, -1) - cut.seconds)
        return float(exposed.sum()) + len(cut.used) * self.sync_microseconds * MICROSECOND


def slow_tier(machine: MemoryMachine) -> str:
    return "remote" if machine.remote_bytes else "host"


@dataclass(frozen=True)
class Planner:
    """Plans with given swaps, but for tensors that stay in slow memory."""

    intervals: Intervals
    machine: MemoryMachine
    swaps: Sequence[TensorSwap]

    def plan(self, slow: Collection[int], notes: dict[str, Any]) -> MemoryPlan:
        """Return the swaps as they are if they leave enough bytes.

        Otherwise tensors go out at once, and come back when there are free bytes.
        """
        step, room = self.intervals.step, self._room(slow)
        swaps = [swap for swap in self.swaps if swap.gap.tensor not in slow]
        if bool((load_under(step, swaps) > room).any()):
            swaps = within(step, [replace(swap, leave=-1) for swap in swaps], room)
        moves = (*uses_in_place(self.intervals.step, self.machine, slow), *moves_of(swaps))
        return MemoryPlan(moves, notes={**notes, "left_in_slow_memory": len(slow), "swaps": len(swaps)})

    def _room(self, slow: Collection[int]) -> Ints:
        """The capacity by op, as if tensors in slow memory were extra capacity."""
        room = np.full(len(self.intervals.step.ops), self.machine.capacity, np.int64)
        for tensor in slow:
            room[slice(*self.intervals.span(tensor))] += self.intervals.step.tensors.bytes[tensor]
        return room

    def pick_least_used(self) -> list[int]:
        """The least used tensors, as many as must stay in slow memory for the step to fit."""
        step = self.intervals.step
        order = sorted(
            self.intervals.tensors, key=lambda t: (len(step.uses[t]), -int(step.tensors.bytes[t]), t)
        )
        counts = (*range(0, len(order), STRIDE), len(order))
        return next((order[:count] for count in counts if self._fits(set(order[:count]))), order)

    def _fits(self, slow: Collection[int]) -> bool:
        """Whether there are enough bytes if every other tensor leaves at once and returns at its use."""
        absent = [
            replace(swap, leave=-1, back=swap.gap.before)
            for swap in self.swaps
            if swap.gap.tensor not in slow
        ]
        return not bool((load_under(self.intervals.step, absent) > self._room(slow)).any())

    def better_slow(self, late: Mapping[int, float]) -> list[int]:
        """Return late tensors that are better used in slow memory.

        Their uses there would prolong their ops by less than the step waited for them.
        """
        step, found = self.intervals.step, []
        swapped = {swap.gap.tensor for swap in self.swaps}
        for tensor, seconds in sorted(late.items()):
            uses = step.uses[tensor].tolist()
            access = {op: access_in_place(step, self.machine, op, tensor) for op in uses}
            extra = sum(max(0.0, access[op] - float(step.ops.seconds[op])) for op in uses)
            if tensor in swapped and extra < seconds:
                found.append(tensor)
        return found
