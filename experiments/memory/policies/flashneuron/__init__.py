"""FlashNeuron (Bae et al., FAST 2021): saved tensors go to an SSD in forward order, just enough of them for
the rest to fit.

Phase 1 takes candidates in the order of their first use until what stays fits next to the persistent tensors
and the largest op. If writing them takes longer than the forward pass, phase 2 (``compress``) chooses again
with the most compressible first, compressed sparse rows of 16-bit values where a tensor's zeros are known and
16-bit values otherwise; the plan with less time on the link is kept. Backward begins when every write has
ended; after each backward op, absent tensors of the coming ops are fetched while they fit next to the largest
op. Two-ended allocation: tensors that leave lie at the upper end.

``preset=artifact`` is FlashNeuron as G10's release carries it out, without compression: the prefetcher looks
at the allocator's holes while the step runs. ``preset=paper`` plans each prefetch by counting bytes; where
the simulator's allocator then finds no hole, it plans again for a little less than the capacity. Left open by
the paper: a tensor of phase 2 is compressed by the copy engine, at no cost of compute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from experiments.core.knobs import knob
from experiments.memory.interface import DeviceView, MemoryPlan, MemoryPolicy, Offload, TwoEndedRelease
from experiments.memory.interface.paged import PagedStep
from experiments.memory.planning.g10.priority import TIE_ORDERS, order_by
from experiments.memory.planning.g10.release_rules import is_model
from experiments.memory.policies.flashneuron.forward_offload import bytes_for_saved, candidates, choose
from experiments.memory.policies.flashneuron.ssd_offload import offload_to_storage
from experiments.workloads.step import Step

#: The release takes this share of the capacity for ViT with batch 1024, which its allocator cannot fit
#: otherwise.
VIT_1024_MARGIN = 0.993


@dataclass(frozen=True)
class FlashNeuron(MemoryPolicy):
    """Saved tensors go to storage in the forward pass and are read back before use.

    They are the first that make the rest fit.
    """

    name: ClassVar[str] = "flashneuron"
    mechanism: ClassVar[str] = "offload"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")

    preset: str = knob(
        "paper", "real capacities, or the published release's rules", choices=("paper", "artifact")
    )
    compress: bool = knob(False, "phase 2: prefer compressible tensors when writing takes too long")
    tie_order: str = knob(
        "artifact", "order of writes due at one op in the release's rules", choices=TIE_ORDERS
    )
    vit1024_margin: bool = knob(True, "the release's smaller capacity for ViT with batch 1024")

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        if self.preset == "paper":
            return offload_to_storage(step, device, self.compress)
        paged, capacity = PagedStep(step), device.machine.capacity
        if self.vit1024_margin and is_model(step, "vit", 1024):
            capacity = int(capacity * VIT_1024_MARGIN)
        line = bytes_for_saved(paged, capacity)
        order = candidates(paged)
        writes, rest = choose(paged, order, line)
        writes = order_by(writes, [write.start for write in writes], self.tie_order)
        moves = tuple(Offload(write.start, write.tensor, write.start - 1, "storage") for write in writes)
        notes: dict[str, Any] = {"line": line, "candidates": len(order), "chosen": len(writes), "rest": rest}
        return MemoryPlan(moves, notes=notes, space=TwoEndedRelease())
