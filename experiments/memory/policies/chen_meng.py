"""Meng et al. (NIPS workshop 2017): the longest-lived feature maps are swapped, each fetched by a control
edge.

Feature maps with a reader in the backward pass are visited in reverse topological order, those with the
shortest life first, and stay on the device until the threshold is used up; all that come after are swapped. A
swap-in is triggered by the latest node whose completion time, on the critical path of the graph, leaves the
time of the copy before its reader.

Left open by the paper: the threshold leaves bytes for the parameters and the largest op; without one given it
is the device's capacity, and one more map is swapped as long as the step still does not fit. Where no node is
early enough, the one after the producer's last forward reader triggers; where the map would not fit that
early, a later one does. Not reproduced: the second rewrite, which recomputes the sum of keys and query in
additive attention of recurrent models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from experiments.core.knobs import knob
from experiments.memory.interface import DeviceView, MemoryMachine, MemoryPlan, MemoryPolicy
from experiments.memory.interface.activations import Saved, saved_activations
from experiments.memory.planning.graph import DataFlow
from experiments.memory.planning.swaps import Gap, TensorSwap, earliest_return, load_under, moves_of, within
from experiments.workloads.step import Step


def largest_transient_need(step: Step) -> int:
    """Most bytes that an op needs next to persistent tensors."""
    sizes = np.where(step.persistent, 0, step.tensors.bytes)
    needs = [int(sizes[row].sum()) for row in step.touched]
    return int((np.array(needs, np.int64) + step.ops.workspace).max(initial=0))


def count_kept(maps: Sequence[Saved], budget: float) -> int:
    """How many of ``maps``, shortest life first, stay within ``budget`` bytes."""
    total = 0.0
    for count, saved in enumerate(maps):
        total += saved.bytes
        if total > budget:
            return count
    return len(maps)


def trigger(flow: DataFlow, gap: Gap, seconds: float) -> int:
    """Return the op before which the swap-in starts.

    It is the one after the latest that completes ``seconds`` before the reader.
    """
    reader = gap.before
    limit = flow.completion[reader] - flow.step.ops.seconds[reader] - seconds * (1 - 1e-12)
    first = earliest_return(gap)
    early = np.nonzero(np.array(flow.completion[first - 1 : reader]) <= limit)[0]
    return first + int(early[-1]) if len(early) else first


def swaps_of(step: Step, machine: MemoryMachine, maps: Sequence[Saved], flow: DataFlow) -> list[TensorSwap]:
    """Each map leaves after its last forward reader; no earlier back than there are free bytes for it."""
    gaps = [Gap(s.tensor, s.bytes, s.last_forward, s.first_backward) for s in maps]
    wide = [gap for gap in gaps if gap.bytes and gap.before > gap.after + 2]
    swaps = [TensorSwap(gap, trigger(flow, gap, machine.back_time(gap.bytes))) for gap in wide]
    return within(step, swaps, machine.capacity)


@dataclass(frozen=True)
class ChenMeng(MemoryPolicy):
    """Swaps the longest-lived feature maps beyond a threshold; the critical path decides when they return."""

    name: ClassVar[str] = "chen_meng"
    mechanism: ClassVar[str] = "offload"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")

    threshold: float | None = knob(
        None,
        "device bytes that the step may use; empty: the capacity, lowered until the step fits",
        low=0.0,
        high=2.0**50,
        unit="bytes",
    )

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        threshold = device.capacity if self.threshold is None else self.threshold
        if step.live_peak <= threshold:
            return MemoryPlan()
        flow = DataFlow(step)
        maps = sorted(saved_activations(step), key=lambda saved: (-saved.produced, saved.tensor))
        stay = count_kept(maps, threshold - step.persistent_bytes - largest_transient_need(step))
        swaps = swaps_of(step, device.machine, maps[stay:], flow)
        while self.threshold is None and stay and load_under(step, swaps).max() > device.capacity:
            stay -= max(1, stay // 8)
            swaps = swaps_of(step, device.machine, maps[stay:], flow)
        return MemoryPlan(moves_of(swaps), notes={"kept_maps": stay, "swapped_maps": len(swaps)})
