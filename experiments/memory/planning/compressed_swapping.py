"""vDNN's swaps with fewer bytes: what its users are asked, and what compression came to."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.core.knobs import knob
from experiments.memory.interface import MemoryPolicy
from experiments.memory.planning.density import ASSUMED
from experiments.workloads.step import Step


@dataclass(frozen=True)
class CompressedSwapping(MemoryPolicy):
    """Knobs of the policies that make vDNN's swaps smaller."""

    offloads: str = knob("all", "vDNN's set of offloaded layers", choices=("all", "conv"))
    density: float = knob(
        ASSUMED,
        "share of a rectifier's output that is not zero, where it was not measured",
        low=0.0,
        high=1.0,
    )


def summary(step: Step, found: dict[int, float]) -> dict[str, object]:
    """Return the ratio over all bytes that leave, the best one, and how many densities were measured."""
    before = sum(int(step.tensors.bytes[tensor]) for tensor in found)
    after = sum(int(step.tensors.bytes[tensor]) / ratio for tensor, ratio in found.items())
    known = sum(bool(step.tensors.sparsity[tensor] == step.tensors.sparsity[tensor]) for tensor in found)
    return {
        "compression_ratio": before / after if after else 1.0,
        "best_compression_ratio": max(found.values(), default=1.0),
        "densities": f"{known} of {len(found)} measured, the others assumed",
    }
