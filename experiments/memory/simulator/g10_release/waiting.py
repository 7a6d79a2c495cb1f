"""G10-GDS and G10-Host by the release's rules: planned transfers, reads waiting in one queue for space.

Tensors that the plan ever writes are *evictable*: they lie at the right end, all others at the left. Oddities
kept: an op whose tensor waits in the queue runs as soon as the tensor has its pages, whether its copy has
ended or not; a read planned for a tensor that is still resident takes a second range and the first one is
lost; a fetch on demand comes over the storage lane wherever the copy is.
"""

from __future__ import annotations

from collections import deque

from experiments.memory.interface.machine import MemoryMachine
from experiments.memory.interface.paged import PAGE, PagedStep
from experiments.memory.interface.plan import MemoryPlan, Offload, Prefetch
from experiments.memory.simulator.g10_release.lanes import BACK, OUT, READ, WRITE
from experiments.memory.simulator.g10_release.transfers import Transfers
from experiments.memory.simulator.recorder import UNWATCHED, RunRecorder


class WaitingStep(Transfers):
    """One step whose planned reads wait for pages.

    ``reads`` are those that have found none yet, ``wanted`` their tensors, ``on_host`` the tensors whose copy
    is taken to be on the host.
    """

    def __init__(
        self,
        paged: PagedStep,
        machine: MemoryMachine,
        plan: MemoryPlan,
        space_factor: float,
        recorder: RunRecorder = UNWATCHED,
    ) -> None:
        super().__init__(paged, machine, plan, int(machine.capacity * space_factor) // PAGE, recorder)
        self.evictable = {move.tensor for move in plan.moves if isinstance(move, Offload)}
        self.on_host: set[int] = set()
        self.reads: deque[int] = deque()
        self.wanted: set[int] = set()

    def begin(self) -> None:
        for tensor in range(self.paged.tensors):
            if self.paged.is_global[tensor] and not self.try_allocate(tensor, tensor in self.evictable):
                raise self.lacking(tensor)

    def before(self, op: int) -> None:
        for move in self.by_op.get(op, ()):
            if isinstance(move, Offload):
                self._write(move.tensor, move.tier)
            elif isinstance(move, Prefetch):
                self._want(move.tensor)

    def _write(self, tensor: int, tier: str) -> None:
        if tier == "host":
            self._keep_on_host(tensor)
        lane = OUT if tier == "host" else WRITE
        self.lanes.queue(lane, tensor, self.paged.bytes[tensor], self.now)

    def _keep_on_host(self, tensor: int) -> None:
        self.on_host.add(tensor)
        self.host_peak = max(self.host_peak, sum([self.paged.bytes[t] for t in self.on_host]))

    def _want(self, tensor: int) -> None:
        if self.paged.is_global[tensor] and self.place[tensor] is not None:
            return
        self.reads.append(tensor)
        self.wanted.add(tensor)
        self.poke()

    def poke(self) -> None:
        """Give the first waiting read its pages if some hole holds them."""
        if not self.reads or not self.try_allocate(self.reads[0], right=True):
            return
        tensor = self.reads.popleft()
        self.wanted.discard(tensor)
        self.read(tensor, BACK if tensor in self.on_host else READ)

    def finish_transfer(self, tensor: int, lane: int) -> None:
        if lane == OUT:
            self._keep_on_host(tensor)
        elif lane == BACK:
            self.on_host.discard(tensor)

    def follow_up(self) -> None:
        self.poke()

    def after(self, op: int) -> None:
        self.poke()

    def make_resident(self, tensor: int, op: int) -> None:
        if self.place[tensor] is not None:
            self.wait(tensor)
        elif tensor in self.wanted:
            self._allocate_waiting(tensor)
        else:
            evictable = tensor in self.evictable
            self.allocate(tensor, right=evictable)
            if evictable and not self.paged.is_global[tensor] and op > self.paged.birth[tensor]:
                self.read(tensor)
                self.wait(tensor)

    def _allocate_waiting(self, tensor: int) -> None:
        """Serve until the queue has given ``tensor`` its pages."""
        self.poke()
        while self.place[tensor] is None:
            if not self.serve("space"):
                raise self.lacking(tensor)
            self.poke()
