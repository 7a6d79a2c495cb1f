"""Which tensors' bytes lay on a device of pages at its fullest: the step is run once more and watched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from experiments.memory.interface.plan import MemoryPlan
from experiments.memory.interface.space import Paging
from experiments.memory.simulator.blocks import Blocks
from experiments.memory.simulator.paging import PagedRun
from experiments.memory.simulator.prepared import Prepared
from experiments.memory.simulator.report import Fullest, Simulation


class RecordedPagedRun(PagedRun):
    """Keeps what lies there the first time in the last step that the device is as full as it gets."""

    known_peak = 0
    fullest: Fullest | None = None

    def _begin(self) -> None:
        super()._begin()
        self.fullest = None

    def _step(self, op: int, seconds: float) -> None:
        self.at = op
        self._look()
        super()._step(op, seconds)

    def _count(self, size: int, block: int) -> None:
        super()._count(size, block)
        self._look()

    def _look(self) -> None:
        if self.fullest is not None or self.used < self.known_peak:
            return
        there = {*self.resident, *(block for _, block in self.leaving)}
        held = live_bytes(self.s, self.blocks, self.at, there)
        count = len(self.s.sizes)
        scratch = sum(size for tensor, size in held.items() if tensor >= count)
        tensors = {tensor: size for tensor, size in held.items() if tensor < count}
        self.fullest = Fullest(self.now, self.at, tensors, scratch, self.used - sum(held.values()))


def live_bytes(prepared: Prepared, blocks: Blocks, op: int, there: Iterable[int]) -> dict[int, int]:
    """Bytes in the blocks ``there`` of each tensor (and of the op's scratch) that is needed at ``op`` or later."""
    present = set(there)
    found: dict[int, int] = {}
    for tensor in _live(prepared, op):
        size = sum(blocks.within(tensor, block) for block in blocks.of(tensor) if block in present)
        if size:
            found[tensor] = size
    return found


def _live(prepared: Prepared, op: int) -> Sequence[int]:
    step = prepared.step
    living = (step.first_use <= op) & (op <= step.last_use) | step.persistent
    scratch = [other for other, size in enumerate(prepared.workspace) if size]
    own = [len(prepared.sizes) + scratch.index(op)] if op in scratch else []
    return [*living.nonzero()[0].tolist(), *own]


def fullest_of_pages(
    prepared: Prepared, plan: MemoryPlan, paging: Paging, simulation: Simulation
) -> Fullest | None:
    """The fullest moment of ``simulation``, which ``PagedRun`` gave for ``plan``."""
    run = RecordedPagedRun(prepared, plan, paging)
    run.known_peak = simulation.peak_bytes
    run.run()
    return run.fullest
