"""Chimera: two pipelines in opposite directions over the same devices fill each other's gaps.

Source: Li and Hoefler, "Chimera: Efficiently Training Large-Scale Neural Networks with Bidirectional
Pipelines", SC'21, sections 3.1-3.2 and 3.5. "D" is ``stages`` (even), "N" ``micro_batches``. The down
pipeline has stage s on device s, the up pipeline on device D-1-s, so every device hosts two stages and their
weights; gradients of the two replicas are all-reduced as soon as the last backward of a layer is done. A unit
of D micro-batches, half in each direction, never needs a device twice at a time when passes are equally long;
more micro-batches are units in direct concatenation, one every 2D slots, and a last unit may be partly empty
(left open by the paper).

Not reproduced: forward doubling and backward halving, which equalize passes when backward is twice as long;
more than one pair of pipelines; the search for W, D and the micro-batch size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.core.errors import BadInput
from experiments.parallel.interface import BACKWARD, FORWARD, PipelineSchedule, Slot


@dataclass(frozen=True)
class Chimera(PipelineSchedule):
    """Half of the micro-batches go down the devices, half up; each device hosts two stages.

    Each device has the weights of both.
    """

    name: ClassVar[str] = "chimera"

    def hosts(self, stages: int) -> tuple[tuple[int, ...], ...]:
        return tuple((device, stages - 1 - device) for device in range(stages))

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Slot, ...]:
        if stages % 2:
            raise BadInput(
                f"{stages} devices cannot hold a pipeline each way", "knobs.stages", "an even number"
            )
        timed = [
            (start, slot)
            for micro_batch in range(micro_batches)
            for start, slot in _passes(stage, stages, micro_batch)
        ]
        return tuple(slot for _, slot in sorted(timed))


def _passes(device: int, devices: int, micro_batch: int) -> tuple[tuple[int, Slot], ...]:
    """The two passes of a micro-batch on a device, and the slot in which each starts when all are equally
    long.

    Even micro-batches of a unit go down, odd ones up.
    """
    unit, within = divmod(micro_batch, devices)
    injected, up = divmod(within, 2)
    stage = devices - 1 - device if up else device
    begin = 2 * devices * unit + 2 * injected
    return (
        (begin + stage, Slot(FORWARD, micro_batch, stage)),
        (begin + 2 * devices - 1 - stage, Slot(BACKWARD, micro_batch, stage)),
    )
