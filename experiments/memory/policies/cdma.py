"""cDMA (Rhu et al., HPCA 2018): vDNN whose copy engine leaves the zeros of activations out.

The plan is vDNN's, but for the ratio of each transfer: zero-value compression in the memory controller, so it takes
no compute time; the link carries the compressed bytes, as fast as the compressor reads (200 GB/s in the paper), and
the host holds them. Densities are measured where the step was profiled, otherwise assumed (see planning.density).
The paper's own densities are those of networks in the midst of training, which are sparser.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.memory.interface import DeviceView, MemoryPlan, MemoryPolicy, Offload
from experiments.memory.planning.density import ASSUMED, ratios
from experiments.memory.policies.vdnn import plan_of
from experiments.workloads.step import Step


@dataclass(frozen=True)
class CompressedSwapping(MemoryPolicy):
    """vDNN's swaps, smaller: what the policies of this kind are asked."""

    offloads: str = knob("all", "vDNN's set of offloaded layers", choices=("all", "conv"))
    density: float = knob(
        ASSUMED,
        "share of a rectifier's output that is not zero, where it was not measured",
        low=0.0,
        high=1.0,
    )


@dataclass(frozen=True)
class Cdma(CompressedSwapping):
    """vDNN's offloads and prefetches with the zeros compressed away by the copy engine."""

    name: ClassVar[str] = "cdma"

    compressor_bandwidth: float = knob(
        200e9, "bytes a second that the compressing engine reads", low=1e6, high=1e15, unit="bytes/s"
    )

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        plan = plan_of(step, self.offloads)
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


def summary(step: Step, found: dict[int, float]) -> dict[str, object]:
    """The ratio over all bytes that leave, the best one, and how many densities were measured."""
    before = sum(int(step.tensors.bytes[tensor]) for tensor in found)
    after = sum(int(step.tensors.bytes[tensor]) / ratio for tensor, ratio in found.items())
    known = sum(bool(step.tensors.sparsity[tensor] == step.tensors.sparsity[tensor]) for tensor in found)
    return {
        "compression_ratio": before / after if after else 1.0,
        "best_compression_ratio": max(found.values(), default=1.0),
        "densities": f"{known} of {len(found)} measured, the others assumed",
    }
