"""Demand paging: the device is a cache of blocks over a tier; an op touches its tensors' blocks in order.

What is assumed: tensors lie at the addresses of ``blocks.AddressBlocks``; an op's compute is spread evenly
over the bytes that it touches, so a block that is fetched early overlaps with it; up to ``coalesced`` blocks
that an op finds missing side by side are one request, with one latency, whose transfers queue on the channel
in order. Blocks never written hold nothing: they take space but no transfer. Sources: the driver's behavior
as DRAGON (SC 2018), OC-DNN (HiPC 2018) and DeepUM (ASPLOS 2023) describe it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Container, Iterable, Mapping, Sequence

from experiments.core.errors import Infeasible
from experiments.memory.interface.plan import MemoryPlan
from experiments.memory.interface.space import CorrelationPaging, LinePaging, Paging, ReadAheadPaging
from experiments.memory.simulator.backing import Backing
from experiments.memory.simulator.channels import TierChannels
from experiments.memory.simulator.correlation import Correlation
from experiments.memory.simulator.pools.blocks import AddressBlocks
from experiments.memory.simulator.prepared import Prepared
from experiments.memory.simulator.recorder import UNWATCHED, Moment, RunRecorder
from experiments.memory.simulator.report import CAUSES, Fullest, MemorySimulation, Spans

#: Share of the device that pre-eviction keeps free (DeepUM).
LOW_WATER = 0.05


class PagedRun:
    """Several steps in a row on one device; the last one is reported, when caches and tables are warm.

    ``resident`` holds the blocks on the device, the next to leave first; ``arrival`` when those in flight are
    there; ``lines`` when the last line of the block in use is there; ``leaving`` the (time, block) of copies
    on their way out, whose bytes still count in ``used``; ``spared`` what is preferred here or expected next,
    which leaves last.
    """

    def __init__(
        self, prepared: Prepared, plan: MemoryPlan, paging: Paging, recorder: RunRecorder = UNWATCHED
    ) -> None:
        self.s, self.paging = prepared, paging
        self.recorder, self.watches = recorder, recorder.watches
        self.capacity = prepared.machine.capacity
        self.blocks = AddressBlocks(prepared, paging)
        self.hints: dict[int, list[int]] = {}
        for move in plan.moves:
            self.hints.setdefault(move.at, []).append(getattr(move, "tensor", -1))
        self.correlation = Correlation(paging.degree) if isinstance(paging, CorrelationPaging) else None
        self.channels = TierChannels(prepared.machine)
        self.backing = Backing(prepared, paging, self.blocks, self.channels)
        self.resident: OrderedDict[int, None] = OrderedDict()
        self.arrival: dict[int, float] = {}
        self.leaving: deque[tuple[float, int]] = deque()
        self.leaving_bytes = 0
        self.dirty: set[int] = set()
        self.now, self.used, self.peak, self.at = 0.0, 0, 0, -1
        self.window, self.next_block = 1, -1
        self.lines: dict[int, float] = {}
        self.preferred = {b for tensor in paging.preferred for b in self.blocks.of(tensor)}
        self.spared = set(self.preferred)
        self._begin()

    def _begin(self) -> None:
        """Forget the figures so far: a new step is reported, and its clock starts at 0."""
        self.arrival = {block: time - self.now for block, time in self.arrival.items() if time > self.now}
        self.leaving = deque((time - self.now, block) for time, block in self.leaving)
        self.channels.restart(self.now)
        self.now = 0.0
        self.stalls = dict.fromkeys(CAUSES, 0.0)
        self.idle: Spans = []
        self.faults = 0
        self.peak = self.used
        held: dict[int, int] = {}
        for block in self.resident:
            kind = self.blocks.kind[block]
            held[kind] = held.get(kind, 0) + self.blocks.size[block]
        self.recorder.restart()
        self.log: list[tuple[float, int, int]] = [(0.0, kind, size) for kind, size in sorted(held.items())]

    def run(self) -> MemorySimulation:
        for iteration in range(self.paging.iterations):
            if iteration:
                self._begin()
            for op, seconds in enumerate(self.s.seconds):
                self.at = op
                self._step(op, seconds)
        ideal = 0.0
        for value in self.s.seconds:
            ideal += value
        return self._report(ideal)

    def _step(self, op: int, seconds: float) -> None:
        touched = self.blocks.touched[op]
        self.recorder.look(self.used, self.now, op)
        for tensor in self.hints.get(op, ()):
            self.prefetch(self.blocks.of(tensor), touched)
        if self.correlation:
            self._predict(op)
        self.compute(op, touched, seconds)
        if self.correlation:
            self.correlation.learn(self.blocks.identity[op], touched)
        if self.paging.discard_dead:
            self.discard(self.blocks.dying[op])

    def compute(self, op: int, touched: Sequence[int], seconds: float) -> None:
        """Run op ``op``: its blocks one after another, each with its share of the compute."""
        start, stalled, resident, arrival = self.now, 0.0, self.resident, self.arrival
        if all(block in resident and block not in arrival for block in touched):
            if self.paging.eviction == "lru":
                for block in touched:
                    resident.move_to_end(block)
            self.dirty.update(self.blocks.written[op])
            self.now = start + seconds
            return
        writes, lru = set(self.blocks.written[op]), self.paging.eviction == "lru"
        total = sum(self.blocks.size[block] for block in touched) or 1
        done = 0
        for position, block in enumerate(touched):
            if block not in resident or block in arrival:
                self.now = start + stalled + seconds * done / total
                stalled += self._missing(touched, position)
            if lru and block in resident:
                resident.move_to_end(block)
            if block in writes:
                self.dirty.add(block)
            done += self.blocks.size[block]
            if block in self.lines:
                self.now = start + stalled + seconds * done / total
                stalled += self._wait(min(self.lines.pop(block), arrival.pop(block, self.now)))
        self.now = start + stalled + seconds * done / total

    def _missing(self, touched: Sequence[int], position: int) -> float:
        """The op comes to a block that is not there, or not yet; how long it stalls."""
        block, stalled = touched[position], 0.0
        if block not in self.resident:
            stalled = self._fault(touched, position)
        elif self.arrival.get(block, 0.0) > self.now:
            stalled = self._wait(self.arrival[block])
        if block not in self.lines:
            self.arrival.pop(block, None)
        return stalled

    def _wait(self, time: float) -> float:
        if time <= self.now:
            return 0.0
        if time == float("inf"):
            raise Infeasible("waits for a transfer that never ends (zero bandwidth)", self._place())
        stall = time - self.now
        self.stalls["fault"] += stall
        self.idle.append((self.now, self.now + stall))
        self.now += stall
        return stall

    def _fault(self, touched: Sequence[int], position: int) -> float:
        """Fetch missing blocks side by side from ``position`` on; stall until the first is there."""
        first = touched[position]
        held = self.backing.holds(first)
        run = [first]
        for block in touched[position + 1 : position + self.paging.coalesced]:
            if block != run[-1] + 1 or block in self.resident or self.backing.holds(block) != held:
                break
            run.append(block)
        if held:
            self.faults += 1
        begin = self.now + (self.paging.fault_latency if held else 0.0)
        ready = self._bring(run, begin, held)
        if held and isinstance(self.paging, ReadAheadPaging):
            self._read_ahead(first, run[-1], touched, self.paging.window)
        if held and isinstance(self.paging, LinePaging):
            ready = self._first_line(first, begin, ready, self.paging)
        return self._wait(ready)

    def _first_line(self, block: int, begin: float, ready: float, paging: LinePaging) -> float:
        """When the op can go on with the first line of ``block``; ``lines`` has when the last is there."""
        rate = self.s.machine.back.bandwidth if paging.tier == "host" else self._tier_rate()
        rate *= paging.line_share
        size = self.blocks.size[block]
        if rate <= 0:
            return ready
        self.lines[block] = begin + size / rate
        return min(ready, begin + min(size, paging.line_bytes) / rate)

    def _tier_rate(self) -> float:
        machine = self.s.machine
        return (machine.read if self.paging.tier == "storage" else machine.remote_read).bandwidth

    def _bring(self, run: Sequence[int], begin: float, held: bool) -> float:
        """Space and content for the blocks of ``run`` (the first one always); when the first is there."""
        first = float("inf")
        for block in run:
            # The rest of the run may not push out what the run has just brought.
            size = self.blocks.size[block]
            room = self._room(size, self.spared) if self.spared else None
            if room is None:
                room = self._room(size, () if block == run[0] else run)
            if room is None:
                if block == run[0]:
                    raise Infeasible("no block can leave", self._place(), self.blocks.size[block])
                break
            ready = max(begin, room)
            end = self.backing.fetch(block, ready) if held else ready
            self._take(block, end)
            first = min(first, end)
        return first

    def _read_ahead(self, first: int, last: int, touched: Collection[int], most: int) -> None:
        """Fetch what follows in address order and has content; sequential faults double the window."""
        self.window = min(2 * self.window, most) if first == self.next_block else 1
        following = range(last + 1, min(last + 1 + self.window, self.blocks.count))
        self.prefetch([block for block in following if self.backing.holds(block)], touched)
        self.next_block = last + 1 + self.window

    def prefetch(self, blocks: Iterable[int], keep: Collection[int]) -> None:
        """Start to fetch what is missing of ``blocks``, while something but ``keep`` can leave.

        Blocks without content only take their space.
        """
        wanted = [block for block in blocks if block not in self.resident]
        if not wanted:
            return
        spared = {*keep, *wanted, *self.spared}
        for block in wanted:
            room = self._room(self.blocks.size[block], spared)
            if room is None:
                return
            ready = max(self.now, room)
            self._take(block, self.backing.fetch(block, ready) if self.backing.holds(block) else ready)

    def _predict(self, op: int) -> None:
        """Prefetch what the next ops touched the last time, and evict ahead for what they lack (DeepUM)."""
        assert self.correlation is not None
        expected = self.correlation.predict(self.blocks.identity[op])
        self.spared = {*self.preferred, *expected, *self.blocks.touched[op]}
        if all(block in self.resident for block in expected):
            return
        self.prefetch(expected, self.blocks.touched[op])
        while self.capacity - self.used + self.leaving_bytes < LOW_WATER * self.capacity:
            if not self._evict(self.spared):
                return

    def _take(self, block: int, end: float) -> None:
        self.resident[block] = None
        if end > self.now:
            self.arrival[block] = end
        self._count(self.blocks.size[block], block)

    def _count(self, size: int, block: int) -> None:
        self.used = used = self.used + size
        self.log.append((self.now, self.blocks.kind[block], size))
        if used > self.peak:
            self.peak = used
        if self.watches:
            self.recorder.change(block, size)
            self.recorder.look(self.used, self.now, self.at)

    def _room(self, size: int, keep: Collection[int]) -> float | None:
        """When ``size`` bytes are free, for which blocks but ``keep`` may leave; ``None``: too few can."""
        ready = self.now
        while self.used + size > self.capacity:
            if self.leaving:
                time, gone = self.leaving.popleft()
                freed = self.blocks.size[gone]
                self.leaving_bytes -= freed
                self.used -= freed
                if self.watches:
                    self.recorder.change(gone, -freed)
                if time > ready:
                    ready = time
            elif not self._evict(keep):
                return None
        return ready

    def _evict(self, keep: Collection[int]) -> bool:
        """Send the next block to leave on its way; False when none may."""
        for block in self.resident:
            if block not in keep and self.arrival.get(block, 0.0) <= self.now:
                break
        else:
            return False
        self.arrival.pop(block, None)
        del self.resident[block]
        size = self.blocks.size[block]
        end = self.now
        if block in self.dirty or not self.backing.holds(block):
            end = self.backing.write(block, self.now)
            self.dirty.discard(block)
        self.leaving.append((end, block))
        self.leaving_bytes += size
        self.log.append((self.now, self.blocks.kind[block], -size))
        return True

    def discard(self, blocks: Iterable[int]) -> None:
        """These blocks hold nothing that is needed again: their space is free at once."""
        for block in blocks:
            self.backing.forget(block)
            self.dirty.discard(block)
            if block in self.resident:
                del self.resident[block]
                self.arrival.pop(block, None)
                self._count(-self.blocks.size[block], block)

    def _place(self) -> str:
        ops = self.s.step.ops
        return f"op {self.at} ({ops.name[self.at]}, {self.s.step.phase_of(self.at)})"

    def _fullest(self, moment: Moment, held: Mapping[int, int]) -> Fullest:
        """What the blocks ``held`` contain: each tensor that is needed, scratch of the op, and the rest."""
        living = live_bytes(self.s, self.blocks, moment.op, held)
        count = len(self.s.sizes)
        tensors = {tensor: size for tensor, size in living.items() if tensor < count}
        needed = sum(living.values())
        scratch = needed - sum(tensors.values())
        return Fullest(moment.time, moment.op, tensors, scratch, moment.used - needed)

    def _report(self, ideal: float) -> MemorySimulation:
        self.recorder.keep(self._fullest)
        return MemorySimulation(
            peak_bytes=self.peak,
            host_peak=round(self.backing.host_peak),
            step_time=self.now,
            ideal_time=ideal,
            recompute_time=0.0,
            recompute_flops=0.0,
            codec_time=0.0,
            stalls=self.stalls,
            moved_bytes=self.channels.moved,
            transfers=self.channels.spans,
            idle=self.idle,
            log=self.log,
            page_faults=self.faults,
        )


def live_bytes(prepared: Prepared, blocks: AddressBlocks, op: int, there: Container[int]) -> dict[int, int]:
    """Bytes in the blocks ``there`` of each tensor needed at ``op`` or later, and of the op's scratch."""
    found: dict[int, int] = {}
    for tensor in _live(prepared, op):
        size = sum(blocks.within(tensor, block) for block in blocks.of(tensor) if block in there)
        if size:
            found[tensor] = size
    return found


def _live(prepared: Prepared, op: int) -> Sequence[int]:
    step = prepared.step
    living = (step.first_use <= op) & (op <= step.death) | step.persistent
    scratch = [other for other, size in enumerate(prepared.workspace) if size]
    own = [len(prepared.sizes) + scratch.index(op)] if op in scratch else []
    return [*living.nonzero()[0].tolist(), *own]
