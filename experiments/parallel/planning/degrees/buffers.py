"""What an engine holds on a pipeline's devices, in closed form: the simulator's ``buffers``, plan by plan."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from experiments.core.precision import StateBytes
from experiments.parallel.interface.engines import (
    DEEPSPEED,
    ENGINES,
    PYTORCH,
    deepspeed_bytes,
    fsdp2_bytes,
    pipelining_bytes,
)
from experiments.parallel.planning.degrees.chunks import FIRST, LAST, Chunks
from experiments.parallel.planning.degrees.columns import Columns
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats


@dataclass(frozen=True)
class EngineBuffers:
    """Of many plans at once. Shape (plans,) for all but ``chunks``.

    ``ends`` are the parameters of the first and the last operators on one device, ``largest`` those of their
    largest tensors; ``block`` those of a block. ``boundary`` are the bytes of a block's input, ``result``
    those of a micro-batch's logits.
    """

    plans: Columns
    states: StateBytes
    chunks: Chunks
    micro_batches: Ints
    block: Floats
    ends: tuple[Floats, Floats]
    largest: tuple[Floats, Floats]
    boundary: Floats
    result: Floats

    def on(self, device: int, parameters: Floats, largest: Floats) -> Floats:
        """Bytes on a device of ``parameters``, the first, an inner or the last one."""
        of_engine = [self.plans.engine == ENGINES.index(name) for name in (DEEPSPEED, PYTORCH)]
        if not np.any(of_engine):
            return np.zeros(len(self.plans))
        sharers = np.where(self.plans.zero > 0, self.plans.sharers, 1)
        deepspeed = deepspeed_bytes(self.states, self.plans.zero, parameters, largest, sharers)
        pytorch = self._fsdp2(device, parameters, sharers) + self._pipelining(device)
        return np.select(of_engine, [deepspeed, pytorch], 0.0)

    def _fsdp2(self, device: int, parameters: Floats, sharers: Ints) -> Floats:
        alone = self.plans.pipeline == 1
        first, last = (alone | (device == end) for end in (FIRST, LAST))
        others = np.where(first, self.ends[0], 0.0) + np.where(last, self.ends[1], 0.0)
        largest = np.maximum(
            *(np.where(w, size, 0.0) for w, size in zip((first, last), self.largest, strict=True))
        )
        return fsdp2_bytes(self.states, self.plans.zero, parameters, self.block, others, largest, sharers)

    def absent_sums(self, device: int) -> Floats:
        """Bytes of sums of gradients that are not there when most are.

        With as many micro-batches as stages chunks have theirs one after the other.
        """
        plans = self.plans
        alone = (plans.engine == ENGINES.index(PYTORCH)) & (plans.zero == 1)
        alone &= (plans.interleaved > 1) & (self.micro_batches == plans.pipeline)
        blocks = self.chunks.total[:, device] * (1 - 1 / plans.interleaved)
        found: Floats = np.where(alone, self.states.gradients * (blocks * self.block), 0.0)
        return found

    def _pipelining(self, device: int) -> Floats:
        """Chunks of a device are taken to have equally many micro-batches between their passes."""
        chunks = self.plans.interleaved
        total = self.chunks.total[:, device]
        live = np.divide(self.chunks.held[:, device], total, out=np.zeros(len(total)), where=total > 0)
        received, sent = chunks - (device == FIRST), chunks - (device == LAST)
        found = pipelining_bytes(self.micro_batches, live, received * self.boundary, sent * self.boundary)
        if device == LAST:
            found = found + 2 * self.micro_batches * self.result
        return np.where(self.plans.pipeline > 1, found, 0.0)
