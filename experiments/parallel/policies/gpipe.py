"""GPipe (Huang et al., NeurIPS'19): all forwards, then all backwards, then one optimizer step.

Followed: cells of consecutive layers with the least maximum cost, N micro-batches, optional
rematerialization. Left open by the paper: it recomputes every cell by default; here that is the knob
``recompute``. Not reproduced: micro-batch statistics of batch normalization.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.parallel.interface import BACKWARD, FORWARD, PipelineSchedule, Slot


@dataclass(frozen=True)
class GPipe(PipelineSchedule):
    """All forwards of a step, then all backwards in reverse order."""

    name: ClassVar[str] = "gpipe"
    mechanism: ClassVar[str] = "pipeline"

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Slot, ...]:
        forwards = [Slot(FORWARD, index, stage) for index in range(micro_batches)]
        backwards = [Slot(BACKWARD, index, stage) for index in reversed(range(micro_batches))]
        return (*forwards, *backwards)
