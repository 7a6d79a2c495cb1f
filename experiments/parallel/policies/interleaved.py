"""Interleaved 1F1B: each device hosts several model chunks, so that the pipeline fills in smaller steps.

Source: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM",
SC'21, section 2.2.2: micro-batches go through the chunks in rounds of p, the bubble is (p-1)/(v m) of the
compute, pipeline transfers are v times as many. "p" is ``stages``, "m" ``micro_batches``, "v" ``chunks``.
With one chunk the rule would warm up deeper than 1F1B for the same span, so that case is plain 1F1B. Not
reproduced: the scatter/gather optimization of section 4.1, which needs tensor-parallel ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.parallel.interface import PipelineSchedule, Slot
from experiments.parallel.interface.rounds import alternating, devices_by_stage


@dataclass(frozen=True)
class Interleaved(PipelineSchedule):
    """1F1B over several chunks of the model on each device: the bubble shrinks by their number."""

    name: ClassVar[str] = "interleaved"
    mechanism: ClassVar[str] = "pipeline"

    chunks: int = knob(2, "model chunks on each device", low=1, high=1024)

    def hosts(self, stages: int) -> tuple[tuple[int, ...], ...]:
        return devices_by_stage(stages, self.chunks)

    def together(self, stages: int) -> int:
        return stages if self.chunks > 1 else 1

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Slot, ...]:
        ahead = stages - stage - 1
        warm_up = 2 * ahead + (self.chunks - 1) * stages if self.chunks > 1 else ahead
        return alternating(stage, stages, micro_batches, self.chunks, warm_up)
