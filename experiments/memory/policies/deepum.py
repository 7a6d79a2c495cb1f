"""DeepUM (Jung et al., ASPLOS 2023): kernels repeat in a fixed order, so the blocks of the next ones are
fetched ahead.

Execution and block tables learn in the first step which kernel follows which and what each touched; a step of
this simulator has one order of kernels, so the tables' prediction is that order: kernel ``i`` prefetches what
kernel ``i + degree`` touches, and nothing that the kernels until then need is evicted for it. Blocks of dead
tensors are dropped without a copy. ``preset=artifact`` is DeepUM as G10's release carries it out,
``preset=paper`` the simulator's own demand paging with correlation prefetch over host memory, or storage
where the host is too small. Not reproduced: mispredictions, and the limits of the tables' size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.memory.interface import (
    CorrelationPaging,
    DeviceView,
    MemoryPlan,
    MemoryPolicy,
    PagingRelease,
)
from experiments.memory.planning.backing import backing_of
from experiments.memory.planning.g10.release_rules import block_bytes
from experiments.workloads.step import Step


@dataclass(frozen=True)
class DeepUm(MemoryPolicy):
    """Correlation prefetch over unified memory.

    What the coming kernels touched last time is fetched before them.
    """

    name: ClassVar[str] = "deepum"
    mechanism: ClassVar[str] = "page on demand"
    oversubscribes: ClassVar[bool] = True

    preset: str = knob(
        "paper", "the simulator's paging, or the published release's rules", choices=("paper", "artifact")
    )
    degree: int = knob(8, "kernels ahead that are prefetched", low=1, high=4096)
    coalesced: int = knob(1, "missing blocks side by side that are one fault", low=1, high=4096)

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        if self.preset == "artifact":
            return MemoryPlan(space=PagingRelease(lookahead=self.degree, block_bytes=block_bytes(step)))
        backing = backing_of(step, device.machine)
        paging = CorrelationPaging(
            degree=self.degree, coalesced=self.coalesced, backing=backing, discard_dead=True
        )
        return MemoryPlan(space=paging)
