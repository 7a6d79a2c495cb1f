"""One step under the release's transfer rules: a compute lane, four transfer lanes, contiguous pages.

Before an op its planned transfers are queued and what it touches becomes resident, one tensor after another;
the clock moves by serving the transfers that end first. A queued write does not keep an op from using the
tensor; when it ends, whatever pages the tensor then has are free.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import accumulate

from experiments.core.errors import Infeasible
from experiments.memory.interface.machine import MemoryMachine
from experiments.memory.interface.paged import PAGE, PagedStep
from experiments.memory.interface.plan import MemoryMove, MemoryPlan
from experiments.memory.simulator.g10_release.allocator import PageAllocator
from experiments.memory.simulator.g10_release.lanes import NEVER, READ, WRITE, TransferLanes
from experiments.memory.simulator.recorder import Moment, RunRecorder
from experiments.memory.simulator.report import CAUSES, TIMELINE, Fullest, MemorySimulation, Spans

WORKSPACE = TIMELINE.index("workspace")


def kinds_of(paged: PagedStep) -> list[int]:
    """For each tensor of ``paged`` its index in ``TIMELINE``."""
    own: list[int] = paged.step.tensors.kind.tolist()
    return own + [WORKSPACE] * (paged.tensors - len(own))


def fullest_of(paged: PagedStep, time: float, op: int, held: Mapping[int, int]) -> Fullest:
    """The fullest moment from the bytes of each tensor there (-1: a range that serves all transient ones)."""
    own = len(paged.step.tensors)
    living = {t: size for t, size in held.items() if 0 <= t < own and _is_needed(paged, t, op)}
    scratch = sum(size for t, size in held.items() if not 0 <= t < own)
    return Fullest(time, op, living, scratch, sum(held.values()) - sum(living.values()) - scratch)


def _is_needed(paged: PagedStep, tensor: int, op: int) -> bool:
    return paged.is_global[tensor] or paged.birth[tensor] <= op < paged.death[tensor]


class Transfers:
    """State and clock of one step; subclasses say what is carried out before and after an op.

    ``place[t]`` is the first page of a tensor's range, ``None`` when it is absent; ``fetching`` the tensors
    whose read has not ended; ``used`` the bytes of pages in use, where a recorder watches.
    """

    def __init__(
        self, paged: PagedStep, machine: MemoryMachine, plan: MemoryPlan, space: int, recorder: RunRecorder
    ) -> None:
        self.paged, self.machine, self.plan, self.recorder = paged, machine, plan, recorder
        self.space = PageAllocator(space)
        self.lanes = TransferLanes(machine)
        self.place: list[int | None] = [None] * paged.tensors
        self.fetching: set[int] = set()
        self.kinds = kinds_of(paged)
        self.now, self.at, self.host_peak = 0.0, -1, 0
        self.stalls = dict.fromkeys(CAUSES, 0.0)
        self.idle: Spans = []
        self.log: list[tuple[float, int, int]] = []
        self.used = 0
        self.by_op: dict[int, list[MemoryMove]] = defaultdict(list)
        for move in plan.moves:
            self.by_op[move.at].append(move)

    def run(self) -> MemorySimulation:
        self.begin()
        for op, seconds in enumerate(self.paged.seconds):
            self.at = op
            self.before(op)
            for tensor in self.paged.touched[op]:
                self.make_resident(tensor, op)
            self.compute(seconds)
            for tensor in self.paged.dying[op]:
                self.free(tensor)
            self.after(op)
        return self._report()

    def begin(self) -> None:
        """Global tensors are resident when the step begins."""
        raise NotImplementedError

    def before(self, op: int) -> None:
        """The transfers issued when ``op`` is about to begin."""
        raise NotImplementedError

    def make_resident(self, tensor: int, op: int) -> None:
        """Return when ``op`` may use ``tensor``."""
        raise NotImplementedError

    def after(self, op: int) -> None:
        """What follows an op and its frees."""

    def follow_up(self) -> None:
        """Do what follows the end of an op, or of a transfer while compute runs or waits for a tensor."""

    def compute(self, seconds: float) -> None:
        """The device computes; transfers end meanwhile."""
        end, lanes = self.now + seconds, self.lanes
        while min(lanes.ends) <= end:
            self._complete(lanes.next)
            self.follow_up()
        self.now = end
        self.follow_up()

    def serve(self, cause: str) -> bool:
        """Compute waits for the next transfer to end; False when none is in flight."""
        lane = self.lanes.next
        if self.lanes.ends[lane] == NEVER:
            return False
        waited = self.lanes.ends[lane] - self.now
        if waited > 0:
            self.stalls[cause] += waited
            self.idle.append((self.now, self.now + waited))
        self._complete(lane)
        return True

    def wait(self, tensor: int) -> None:
        """Until the read of ``tensor`` has ended."""
        while tensor in self.fetching:
            if not self.serve("transfer"):
                raise Infeasible(f"waits for tensor {tensor}, whose transfer never ends", self.where())
            self.follow_up()

    def _complete(self, lane: int) -> None:
        self.now = self.lanes.ends[lane]
        tensor = self.lanes.finish(lane)
        if lane % 2 == WRITE:
            self.free(tensor)
        else:
            self.fetching.discard(tensor)
        self.finish_transfer(tensor, lane)

    def finish_transfer(self, tensor: int, lane: int) -> None:
        """A transfer of ``tensor`` has ended."""

    def allocate(self, tensor: int, right: bool) -> None:
        """Take pages for ``tensor``; where none fit, wait for transfers, and only then do what follows."""
        waited = False
        while not self.try_allocate(tensor, right):
            if not self.serve("space"):
                raise self.lacking(tensor)
            waited = True
        if waited:
            self.follow_up()

    def try_allocate(self, tensor: int, right: bool) -> bool:
        pages = self.paged.pages[tensor]
        start = self.space.take(pages, right) if pages else 0
        if start is None:
            return False
        self.place[tensor] = start
        self._note(tensor, self.kinds[tensor], pages * PAGE)
        return True

    def _note(self, tensor: int, kind: int, change: int) -> None:
        self.log.append((self.now, kind, change))
        if self.recorder.watches:
            self.used += change
            self.recorder.change(tensor, change)
            self.recorder.look(self.used, self.now, self.at)

    def free(self, tensor: int) -> None:
        """The pages that ``tensor`` has, if any, are free."""
        start, pages = self.place[tensor], self.paged.pages[tensor]
        if start is None:
            return
        self.space.give(start, pages)
        self.place[tensor] = None
        self._note(tensor, self.kinds[tensor], -pages * PAGE)

    def read(self, tensor: int, lane: int = READ) -> None:
        """Queue the copy of a tensor that has its pages."""
        self.fetching.add(tensor)
        self.lanes.queue(lane, tensor, self.paged.bytes[tensor], self.now)

    def lacking(self, tensor: int) -> Infeasible:
        pages, used = self.paged.pages[tensor], 1 - self.space.free / self.space.total
        what = f"tensor {tensor} wants {pages} contiguous pages, the largest hole has {self.space.largest}"
        message = f"{what}; {used:.1%} of {self.space.total} pages are in use"
        return Infeasible(message, self.where(), (pages - self.space.largest) * PAGE)

    def where(self) -> str:
        ops = self.paged.step.ops
        return f"op {self.at} ({ops.name[self.at]})" if self.at >= 0 else "start of the step"

    def _report(self) -> MemorySimulation:
        self.recorder.keep(self._fullest)
        return MemorySimulation(
            peak_bytes=max(accumulate(change for _, _, change in self.log), default=0),
            host_peak=self.host_peak,
            step_time=self.now,
            ideal_time=sum(self.paged.seconds),
            recompute_time=0.0,
            recompute_flops=0.0,
            codec_time=0.0,
            stalls=self.stalls,
            moved_bytes=self.lanes.moved_bytes,
            transfers=self.lanes.spans_until(self.now),
            idle=self.idle,
            log=self.log,
        )

    def _fullest(self, moment: Moment, held: Mapping[int, int]) -> Fullest:
        return fullest_of(self.paged, moment.time, moment.op, held)
