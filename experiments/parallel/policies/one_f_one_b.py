"""1F1B with a flush (PipeDream-Flush; the default of Megatron-LM): one forward, one backward in steady state.

Source: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM",
SC'21, section 2.2.1. The span equals GPipe's; a stage holds min(stages - stage, micro-batches) micro-batches
at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.parallel.interface import BACKWARD, FORWARD, PipelineSchedule, Slot


@dataclass(frozen=True)
class OneForwardOneBackward(PipelineSchedule):
    """A few warm-up forwards, then one forward and one backward in turn, then the remaining backwards."""

    name: ClassVar[str] = "one_f_one_b"
    mechanism: ClassVar[str] = "pipeline"

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Slot, ...]:
        warm_up = min(stages - 1 - stage, micro_batches)
        steady = micro_batches - warm_up
        slots = [Slot(FORWARD, index, stage) for index in range(warm_up)]
        for index in range(steady):
            slots += [Slot(FORWARD, warm_up + index, stage), Slot(BACKWARD, index, stage)]
        return (*slots, *(Slot(BACKWARD, index, stage) for index in range(steady, micro_batches)))
