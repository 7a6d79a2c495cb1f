"""Unified memory without hints, as the baseline of G10 and DeepUM: pages come on faults, the oldest ones
leave.

``preset=artifact`` is carried out as G10's release does: blocks leave in the order of their arrival, tensors
that are dead are moved like live ones, global tensors begin on storage, and a kernel's faults cost what its
profile says. ``preset=paper`` is the simulator's own demand paging: 2 MiB blocks over host memory (over
storage, cached in the host, where the host is too small), the least recently used one leaves, a fault costs
the driver's 45 microseconds once for as many blocks side by side as the driver batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.memory.interface import DemandPaging, DeviceView, MemoryPlan, MemoryPolicy, PagingRelease
from experiments.memory.planning.backing import backing_of
from experiments.memory.planning.g10.release_rules import block_bytes
from experiments.workloads.step import Step


@dataclass(frozen=True)
class Uvm(MemoryPolicy):
    """Demand paging between the device and the host, no prefetch, no advice."""

    name: ClassVar[str] = "uvm"
    mechanism: ClassVar[str] = "page on demand"
    oversubscribes: ClassVar[bool] = True

    preset: str = knob(
        "paper", "the simulator's paging, or the published release's rules", choices=("paper", "artifact")
    )
    coalesced: int = knob(1, "missing blocks side by side that are one fault", low=1, high=4096)

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        if self.preset == "artifact":
            return MemoryPlan(space=PagingRelease(keeps_dead=True, block_bytes=block_bytes(step)))
        backing = backing_of(step, device.machine)
        return MemoryPlan(space=DemandPaging(coalesced=self.coalesced, backing=backing))
