"""FlashNeuron by the release's rules: writes to storage in the forward pass, prefetch into what is free.

The plan's offloads name the chosen tensors and when their writes are issued. One that is due at the loss op
is never issued (an oddity). Resident tensors lie at the left end of the device's pages, chosen ones at the
right.
"""

from __future__ import annotations

from bisect import bisect_left

from experiments.core.errors import Infeasible
from experiments.memory.interface.activations import last_forward_op
from experiments.memory.interface.machine import MemoryMachine
from experiments.memory.interface.paged import PAGE, PagedStep
from experiments.memory.interface.plan import MemoryPlan, Offload
from experiments.memory.simulator.g10_release.lanes import WRITE
from experiments.memory.simulator.g10_release.transfers import WORKSPACE, Transfers
from experiments.memory.simulator.recorder import UNWATCHED, RunRecorder


class TwoEndedStep(Transfers):
    """One step; from the loss op on every op first waits for the writes still in flight."""

    def __init__(
        self, paged: PagedStep, machine: MemoryMachine, plan: MemoryPlan, recorder: RunRecorder = UNWATCHED
    ) -> None:
        super().__init__(paged, machine, plan, machine.capacity // PAGE, recorder)
        self.loss = last_forward_op(paged.step)
        self.chosen = {move.tensor for move in plan.moves if isinstance(move, Offload)}
        #: Touches of chosen tensors in order, as (op, tensor): what the prefetcher looks through.
        self.coming = [(op, t) for op, row in enumerate(paged.touched) for t in row if t in self.chosen]
        self.largest_local = max(
            (sum([paged.pages[t] for t in row if not paged.is_global[t]]) for row in paged.touched), default=0
        )

    def begin(self) -> None:
        for tensor in range(self.paged.tensors):
            if self.paged.is_global[tensor] and not self.try_allocate(tensor, right=False):
                raise self.lacking(tensor)
        self._reserve(
            max((p for p, t in zip(self.paged.pages, self.paged.transient, strict=True) if t), default=0)
        )

    def _reserve(self, pages: int) -> None:
        """One range serves all transient tensors."""
        if pages and self.space.take(pages, right=False) is None:
            missing = (pages - self.space.largest) * PAGE
            raise Infeasible(f"no {pages} contiguous pages for transient tensors", self.where(), missing)
        self._note(-1, WORKSPACE, pages * PAGE)

    def before(self, op: int) -> None:
        if op < self.loss:
            for move in self.by_op.get(op, ()):
                assert isinstance(move, Offload)
                self.lanes.queue(WRITE, move.tensor, self.paged.bytes[move.tensor], self.now)
            return
        while self.lanes.queues[WRITE]:
            if not self.serve("synchronization"):
                raise Infeasible("waits for a transfer that never ends (zero bandwidth)", self.where())

    def make_resident(self, tensor: int, op: int) -> None:
        paged = self.paged
        if paged.transient[tensor]:
            return
        if self.place[tensor] is None:
            chosen = tensor in self.chosen
            self.allocate(tensor, right=chosen)
            if chosen and op > paged.birth[tensor]:
                self.read(tensor)
        self.wait(tensor)

    def after(self, op: int) -> None:
        """Prefetch what comes next while it fits into the largest hole next to the largest op."""
        if op < self.loss:
            return
        budget = self.space.largest - self.largest_local
        for place in range(bisect_left(self.coming, (op + 1, -1)), len(self.coming)):
            tensor = self.coming[place][1]
            if self.place[tensor] is not None:
                continue
            pages = self.paged.pages[tensor]
            if budget <= pages or not self.try_allocate(tensor, right=True):
                return
            self.read(tensor)
            budget -= pages
