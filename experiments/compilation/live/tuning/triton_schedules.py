"""The schedules of a product on a GPU.

How ``live.triton_kernels`` divides it into blocks, and what a block gets.
"""

from __future__ import annotations

from experiments.compilation.interface.tuning import ScheduleKnob, ScheduleSpace, TuningTask
from experiments.compilation.live.tuning.model_tasks import ModelOperator

#: ``tl.dot`` takes no side below 16.
SPACE = ScheduleSpace(
    (
        ScheduleKnob("m", (16, 32, 64, 128, 256), "tile"),
        ScheduleKnob("n", (16, 32, 64, 128, 256), "tile"),
        ScheduleKnob("k", (16, 32, 64, 128), "tile"),
        ScheduleKnob("group", (1, 2, 4, 8, 16), "unroll"),
        ScheduleKnob("warps", (1, 2, 4, 8, 16), "unroll"),
        ScheduleKnob("stages", (1, 2, 3, 4, 5), "unroll"),
    )
)


def gpu_task(operator: ModelOperator) -> TuningTask:
    """Return the product with Triton's knobs; there is no loop nest of ours, so a model sees the knobs."""
    return TuningTask(
        operator.title, operator.nest.operator, SPACE, float(operator.calls), operator.nest.flops
    )
