"""cDMA (Rhu et al., HPCA 2018): vDNN whose copy engine leaves the zeros of activations out.

The plan is vDNN's, but for the ratio of each transfer: zero-value compression in the memory controller, so it
takes no compute time; the link carries the compressed bytes, as fast as the compressor reads (200 GB/s in the
paper), and the host holds them. Densities are measured where the step was profiled, otherwise assumed (see
planning.density). The paper's own densities are those of networks in the midst of training, which are
sparser.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.memory.interface import DeviceView, MemoryPlan, Offload
from experiments.memory.planning.compressed_swapping import CompressedSwapping, summary
from experiments.memory.planning.density import ratios
from experiments.memory.planning.layer_offload import offload_plan
from experiments.workloads.step import Step


@dataclass(frozen=True)
class Cdma(CompressedSwapping):
    """vDNN's offloads and prefetches with the zeros compressed away by the copy engine."""

    name: ClassVar[str] = "cdma"
    mechanism: ClassVar[str] = "compress"

    compressor_bandwidth: float = knob(
        200e9, "bytes a second that the compressing engine reads", low=1e6, high=1e15, unit="bytes/s"
    )

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        plan = offload_plan(step, self.offloads)
        if device.estimate(MemoryPlan()).fits:
            return MemoryPlan(notes={"offloads": "none"})
        leaving = [move.tensor for move in plan.moves if isinstance(move, Offload)]
        most = max(1.0, self.compressor_bandwidth / max(device.machine.out.bandwidth, 1.0))
        found = {tensor: min(ratio, most) for tensor, ratio in ratios(step, leaving, self.density).items()}
        moves = tuple(
            replace(move, ratio=found[move.tensor]) if isinstance(move, Offload) else move
            for move in plan.moves
        )
        return replace(plan, moves=moves, notes={**plan.notes, **summary(step, found)})
