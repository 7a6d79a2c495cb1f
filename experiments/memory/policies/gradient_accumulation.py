"""Gradient accumulation: the batch in equal micro-batches, one after another, one update for their summed
gradients.

No single paper: frameworks have it under this name, GPipe (2019) calls the parts micro-batches. Activations
shrink with the part, parameters, gradients and optimizer state do not. The same gradients, but for batch
normalization, whose statistics are then a part's own; the plan's notes say where a model has it. A model is
captured anew with its batch cut; a trace is cut by rule (see ``microbatch``), its parts timed by roofline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.core.errors import BadInput, Infeasible
from experiments.core.knobs import knob
from experiments.core.policy import SECONDS
from experiments.memory.interface import DeviceView, MemoryPlan, MemoryPolicy
from experiments.memory.planning.batch_parts import caveats, divisors
from experiments.workloads.step import Step


@dataclass(frozen=True)
class GradientAccumulation(MemoryPolicy):
    """The fewest equal micro-batches that fit the device, run one after another before one update."""

    name: ClassVar[str] = "gradient_accumulation"
    mechanism: ClassVar[str] = "split the batch"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    oversubscribes: ClassVar[bool] = True
    effort: ClassVar[str] = SECONDS

    parts: int = knob(0, "micro-batches; 0: the fewest that fit", low=0, high=2**20)

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        if self.parts:
            return MemoryPlan(splits=self.parts, notes={"parts": self.parts, **caveats(step)})
        for parts in divisors(step):
            plan = MemoryPlan(splits=parts, notes={"parts": parts, **(caveats(step) if parts > 1 else {})})
            try:
                if device.split(parts).live_peak <= device.capacity:
                    return plan
            except BadInput:
                break
        raise Infeasible("no number of micro-batches fits", "the smallest part of the batch")
