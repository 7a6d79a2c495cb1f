"""Everything stays on the device: what every other policy is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.memory.interface import DeviceView, MemoryPlan, MemoryPolicy
from experiments.workloads.step import Step


@dataclass(frozen=True)
class Baseline(MemoryPolicy):
    """No policy: nothing moves, and what does not fit does not run."""

    name: ClassVar[str] = "baseline"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    is_baseline: ClassVar[bool] = True

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        return MemoryPlan()
