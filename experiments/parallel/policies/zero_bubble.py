"""Zero bubble pipelines: weight gradients are slots of their own and fill the time that others wait.

Sources: Qi et al., "Zero Bubble Pipeline Parallelism", ICLR'24, section 2 (``h1``: ZB-H1) and "Pipeline Parallelism
with Controllable Memory", NeurIPS'24, section 4 (``v``: ZB-V, two chunks that go down and up the devices again, so that
the loss turns round on one device). ``interleaved`` is ZB-H1's rule on the looped chunks of interleaved 1F1B. The
papers' B (input gradient) is a B slot, their W a W slot.

Left open: which W to postpone when passes are unequal; here the order is fixed by counts, as for equal ones, and ZB-V
needs 2p-1 micro-batches to be without gaps. What a micro-batch keeps is counted until its W, though B could already
drop a part (the papers tell M_B from M_W). Not reproduced: ZB-H2, which pays only when steps overlap, with optimizer
validation after the fact instead of a barrier; the search and the integer program for unequal times.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.parallel.interface import BACKWARD, FORWARD, WEIGHT, PipelineSchedule, Slot
from experiments.parallel.interface.rounds import alternating, looped, weights_later

VARIANTS = ("h1", "interleaved", "v")


@dataclass(frozen=True)
class ZeroBubble(PipelineSchedule):
    """Backward split in input and weight gradients; weight gradients wait for the pipeline's gaps."""

    name: ClassVar[str] = "zero_bubble"

    variant: str = knob(
        "h1", "h1: 1F1B order; interleaved: looped chunks; v: two chunks, down and up", choices=VARIANTS
    )
    chunks: int = knob(2, "model chunks on each device (variant interleaved)", low=1, high=1024)

    def hosts(self, stages: int) -> tuple[tuple[int, ...], ...]:
        if self.variant == "v":
            down = tuple((device,) for device in range(stages))
            return (*down, *reversed(down))
        return looped(stages, self._looped_chunks)

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Slot, ...]:
        if self.variant == "v":
            return _down_and_up(stage, stages, micro_batches)
        warm_up = (self._looped_chunks - 1) * stages + stages - 1 - stage
        slots = alternating(stage, stages, micro_batches, self._looped_chunks, warm_up)
        return weights_later(slots, stage)

    @property
    def _looped_chunks(self) -> int:
        return self.chunks if self.variant == "interleaved" else 1


class _Passes:
    """The slots of one device; each pass takes the next micro-batch of its kind and stage, if there is one."""

    def __init__(self, micro_batches: int) -> None:
        self.micro_batches = micro_batches
        self.slots: list[Slot] = []
        self.done: Counter[tuple[str, int]] = Counter()

    def take(self, kinds: str, stage: int, times: int = 1) -> None:
        for _ in range(times):
            for kind in kinds:
                if self.left(kind, stage):
                    self.slots.append(Slot(kind, self.done[kind, stage], stage))
                    self.done[kind, stage] += 1

    def left(self, kind: str, stage: int) -> int:
        return self.micro_batches - self.done[kind, stage]


def _down_and_up(device: int, devices: int, micro_batches: int) -> tuple[Slot, ...]:
    """ZB-V: as many forwards down as 1F1B's memory allows, then F, B, W on the two chunks in turn; W's fill the end.

    The order is made for 2p-1 micro-batches at least; with fewer, the passes of those that are missing are left out.
    """
    down, up = device, 2 * devices - 1 - device
    full = max(micro_batches, 2 * devices - 1)
    passes = _Passes(full)
    passes.take(FORWARD, down, 2 * (devices - device) - 1)
    for _ in range(device):
        passes.take(FORWARD, up)
        passes.take(FORWARD, down)
    passes.take(FORWARD + BACKWARD + WEIGHT, up, devices - device)
    while passes.left(FORWARD, up):
        passes.take(FORWARD + BACKWARD + WEIGHT, down)
        passes.take(FORWARD + BACKWARD + WEIGHT, up)
    for _ in range(device):
        passes.take(BACKWARD, down)
        passes.take(BACKWARD, up)
    passes.take(BACKWARD + WEIGHT, down, devices - device)
    passes.take(WEIGHT, up, full)
    passes.take(WEIGHT, down, full)
    return tuple(slot for slot in passes.slots if slot.micro_batch < micro_batches)
