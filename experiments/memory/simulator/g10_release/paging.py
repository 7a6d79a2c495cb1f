"""UVM, DeepUM and G10 by the release's rules: blocks move on faults and on hints, first in, first out.

An op whose blocks are all on the device runs; otherwise what is missing is queued, the op waits for all of it
and is held up by its page faults. When the device is full, the block that arrived first leaves. The release
moves pages of 4 KiB in batches of 13 microseconds; here blocks move, and are allocated, one after another at
the same rates. Two steps are run, the shorter one is reported.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping

from experiments.core.errors import Infeasible
from experiments.memory.interface.machine import MemoryMachine
from experiments.memory.interface.paged import PagedStep
from experiments.memory.interface.plan import Drop, MemoryMove, MemoryPlan, Offload, Prefetch
from experiments.memory.interface.release import PagingRelease
from experiments.memory.simulator.g10_release.batches import AllocationLane, lanes_of
from experiments.memory.simulator.g10_release.blocks import DEVICE, HOST, NOWHERE, STORAGE, ReleaseBlocks
from experiments.memory.simulator.g10_release.fault_time import Faults, FaultTimes, new_outputs
from experiments.memory.simulator.g10_release.transfers import fullest_of, kinds_of
from experiments.memory.simulator.recorder import UNWATCHED, Moment, RunRecorder
from experiments.memory.simulator.report import CAUSES, Fullest, MemorySimulation, Spans

ITERATIONS = 2
Queue = deque[int]


class PagingSteps:
    """State over all steps. Queues by where a block comes from: faults, then what hints asked for.

    ``needed[t]`` is set while the running op touches ``t``, ``missing`` counts its blocks that are not there;
    ``kept[t]`` counts the next ops that touch ``t``, which a prefetch must not evict; ``ready[t]`` is when
    the last block of ``t`` that came is there.
    """

    def __init__(
        self,
        paged: PagedStep,
        machine: MemoryMachine,
        plan: MemoryPlan,
        rules: PagingRelease,
        recorder: RunRecorder = UNWATCHED,
    ) -> None:
        self.paged, self.machine, self.rules, self.recorder = paged, machine, rules, recorder
        self.blocks = ReleaseBlocks(paged, rules.block_bytes, kinds_of(paged), recorder)
        self.out, self.back = lanes_of(machine)
        self.allocations = AllocationLane()
        self.fault_times = FaultTimes(paged, machine)
        self.writes: dict[int, Queue] = {STORAGE: deque(), HOST: deque()}
        self.faults: dict[int, Queue] = {STORAGE: deque(), HOST: deque(), NOWHERE: deque()}
        self.hinted: dict[int, Queue] = {STORAGE: deque(), HOST: deque(), NOWHERE: deque()}
        self.needed, self.kept = bytearray(paged.tensors), [0] * paged.tensors
        self.ready, self.leaving = [0.0] * paged.tensors, [0] * paged.tensors
        self.missing, self.now, self.op, self.peak = 0, 0.0, -1, 0
        self.moves: dict[int, list[MemoryMove]] = defaultdict(list)
        for move in plan.moves:
            self.moves[move.at].append(move)
        for tensor in range(paged.tensors):
            if paged.is_global[tensor]:
                for block in self.blocks.of(tensor):
                    self.blocks.put(block, STORAGE)

    def run(self) -> MemorySimulation:
        shortest = self._step(0)
        self.recorder.keep(self._fullest)
        for turn in range(1, ITERATIONS):
            done = self._step(turn)
            if done.step_time < shortest.step_time:
                shortest = done
                self.recorder.keep(self._fullest)
        return shortest

    def _step(self, turn: int) -> MemorySimulation:
        start, blocks = self.now, self.blocks
        self.start = start
        self.recorder.restart()
        self.out.restart()
        self.back.restart()
        blocks.host_peak = blocks.on_host
        self._note_peak()
        idle: Spans = []
        log = [(0.0, kind, size) for kind, size in enumerate(blocks.held) if size]
        if turn:
            self._hints(self.paged.ops)
        for op, seconds in enumerate(self.paged.seconds):
            began, held = self.now - start, [*blocks.held]
            self._op(op)
            ended = self.now - start
            if ended - seconds > began:
                idle.append((began, ended - seconds))
            changes = [after - before for after, before in zip(blocks.held, held, strict=True)]
            log += [(ended, kind, change) for kind, change in enumerate(changes) if change]
        return self._report(start, idle, log)

    def _op(self, op: int) -> None:
        self.op = op
        self._look_ahead(op)
        self._hints(op)
        touched = self.paged.touched[op]
        for tensor in touched:
            self.needed[tensor] = 1
        faults = self._fault(op)
        begin = self.now
        self.missing = sum([self.blocks.absent[t] + self.leaving[t] for t in touched])
        while self.missing or any(self.faults.values()):
            self._advance(float("inf"))
        arrived = max([self.now, *[self.ready[t] for t in touched]])
        end = begin + self.paged.seconds[op] + self.fault_times.of(op, faults)
        while self.now < max(end, arrived):
            self._advance(max(end, arrived))
        for tensor in touched:
            self.needed[tensor] = 0

    def _fault(self, op: int) -> Faults:
        """Queue the missing blocks of ``op`` that are not in motion, tensor by tensor as listed."""
        blocks, found = self.blocks, Faults()
        written = new_outputs(self.paged, op)
        for tensor in self.paged.listed[op]:
            if not blocks.absent[tensor]:
                continue
            for block in blocks.of(tensor):
                place = blocks.where[block]
                if place == DEVICE or blocks.moving[block]:
                    continue
                sizes = found.storage if place == STORAGE else found.other
                sizes[tensor in written] += blocks.size[block]
                self._queue(self.faults[place], block)
        return found

    def _queue(self, queue: Queue, block: int) -> None:
        self.blocks.moving[block] = 1
        queue.append(block)

    def _look_ahead(self, op: int) -> None:
        """Prefetch what the op ``lookahead`` kernels on touches; keep what the ops until then touch."""
        ahead, ops = self.rules.lookahead, self.paged.ops
        if not ahead:
            return
        window = range(op, op + ahead)
        self.kept = [0] * self.paged.tensors
        for later in window:
            for tensor in self.paged.touched[later % ops]:
                self.kept[tensor] = 1
        self.blocks.look_again()
        for tensor in self.paged.touched[(op + ahead) % ops]:
            self._want(tensor)

    def _want(self, tensor: int) -> None:
        """Ask for the blocks of ``tensor`` that are not on the device, overlapped with compute."""
        blocks = self.blocks
        if not blocks.absent[tensor]:
            return
        for block in blocks.of(tensor):
            if blocks.where[block] != DEVICE and not blocks.moving[block]:
                self._queue(self.hinted[blocks.where[block]], block)

    def _hints(self, op: int) -> None:
        for move in self.moves.get(op, ()):
            if isinstance(move, Offload):
                self._write(move)
            elif isinstance(move, Drop):
                self._drop(move.tensor)
            elif isinstance(move, Prefetch):
                self._want(move.tensor)

    def _write(self, move: Offload) -> None:
        blocks, place = self.blocks, HOST if move.tier == "host" else STORAGE
        for block in blocks.of(move.tensor):
            if blocks.where[block] == DEVICE and not blocks.moving[block]:
                self._queue(self.writes[place], block)
                self.leaving[move.tensor] += 1

    def _drop(self, tensor: int) -> None:
        for block in self.blocks.of(tensor):
            if self.blocks.where[block] != NOWHERE and not self.blocks.moving[block]:
                self.blocks.put(block, NOWHERE)

    def _advance(self, end: float) -> None:
        """Start every move that can start now, then go to when the next one could, at most to ``end``."""
        while self._serve():
            pass
        now, later = self.now, end
        out, back = self.out, self.back
        for time in (out.free, out.storage_free, back.free, back.storage_free, self.allocations.free):
            if now < time < later:
                later = time
        if later < float("inf"):
            self.now = later
        elif (self.missing or any(self.faults.values())) and not self._serve_unkept():
            raise Infeasible(f"waits for {self.missing} blocks that never come", self._where())

    def _where(self) -> str:
        return f"op {self.op} ({self.paged.step.ops.name[self.op]})"

    def _serve(self) -> bool:
        """Start one move: planned writes, faults, prefetches, in this order; False when none can start."""
        now, hinted = self.now, bool(self.rules.lookahead)
        if self.out.free <= now and self._serve_writes():
            return True
        if self.back.free > now and self.allocations.free > now:
            return False
        return self._serve_queues(self.faults, False) or self._serve_queues(self.hinted, hinted)

    def _serve_writes(self) -> bool:
        for place, queue in self.writes.items():
            if not queue:
                continue
            to = place if place == STORAGE or self._host_holds(queue[0]) else STORAGE
            if self.out.ready(self.now, to == STORAGE):
                block = queue.popleft()
                self.blocks.moving[block] = 0
                self.leaving[self.blocks.tensor[block]] -= 1
                self._send(block, to)
                return True
        return False

    def _host_holds(self, block: int) -> bool:
        return self.blocks.on_host + self.blocks.size[block] <= self.machine.host_bytes

    def _serve_queues(self, queues: dict[int, Queue], kept: bool) -> bool:
        for place, queue in queues.items():
            if not queue or not self._way_in_is_free(place):
                continue
            if self._make_room(queue[0], kept and not self.needed[self.blocks.tensor[queue[0]]]):
                self._bring(queue.popleft(), place)
                return True
        return False

    def _way_in_is_free(self, place: int) -> bool:
        """Whether a block that is in ``place`` may be brought now."""
        if place == NOWHERE:
            return self.allocations.ready(self.now)
        return self.back.ready(self.now, place == STORAGE)

    def _serve_unkept(self) -> bool:
        """Nothing moves and the op waits: what was asked for comes as if it were a fault."""
        return self._serve_queues(self.hinted, False)

    def _bring(self, block: int, place: int) -> None:
        blocks, tensor = self.blocks, self.blocks.tensor[block]
        blocks.moving[block] = 0
        blocks.put(block, DEVICE)
        if blocks.used > self.peak:
            self._note_peak()
        if place == NOWHERE:
            self.allocations.take(blocks.size[block], self.now)
        else:
            end = self.back.move(blocks.size[block], self.now, place == STORAGE)
            self.ready[tensor] = max(self.ready[tensor], end)
        if self.needed[tensor]:
            self.missing -= 1

    def _note_peak(self) -> None:
        self.peak = self.blocks.used
        self.recorder.look(self.peak, self.now - self.start, self.op % self.paged.ops)

    def _make_room(self, block: int, kept: bool) -> bool:
        """Evict until ``block`` fits; False when the way out is busy or nothing may leave."""
        blocks = self.blocks
        while blocks.used + blocks.size[block] > self.machine.capacity:
            victim = blocks.oldest_but(self.kept) if kept else blocks.oldest()
            if victim is None or not self._evict(victim):
                return False
        return True

    def _evict(self, block: int) -> bool:
        """Send ``block`` away; a dead one is dropped in no time, but waits for the way out all the same."""
        if not self.rules.keeps_dead and self._dead(self.blocks.tensor[block]):
            to = NOWHERE
        else:
            to = HOST if self._host_holds(block) else STORAGE
        if not self.out.ready(self.now, to == STORAGE):
            return False
        self.missing += self.needed[self.blocks.tensor[block]]
        self._send(block, to)
        return True

    def _dead(self, tensor: int) -> bool:
        paged = self.paged
        return not paged.is_global[tensor] and not paged.birth[tensor] <= self.op < paged.death[tensor]

    def _send(self, block: int, to: int) -> None:
        self.blocks.put(block, to)
        if to != NOWHERE:
            self.out.move(self.blocks.size[block], self.now, to == STORAGE)
        if self.needed[self.blocks.tensor[block]]:
            self._queue(self.faults[to], block)

    def _report(self, start: float, idle: Spans, log: list[tuple[float, int, int]]) -> MemorySimulation:
        ideal, time = sum(self.paged.seconds), self.now - start
        out, back = self.out, self.back
        lanes = {"out": out.spans, "back": back.spans, "write": out.storage_spans, "read": back.storage_spans}
        return MemorySimulation(
            peak_bytes=self.peak,
            host_peak=self.blocks.host_peak,
            step_time=time,
            ideal_time=ideal,
            recompute_time=0.0,
            recompute_flops=0.0,
            codec_time=0.0,
            stalls=dict.fromkeys(CAUSES, 0.0) | {"fault": time - ideal},
            moved_bytes={
                "out": float(out.moved),
                "back": float(back.moved),
                "write": float(out.storage_moved),
                "read": float(back.storage_moved),
            },
            transfers={
                name: [(a - start, min(b - start, time)) for a, b in spans] for name, spans in lanes.items()
            },
            idle=idle,
            log=log,
        )

    def _fullest(self, moment: Moment, held: Mapping[int, int]) -> Fullest:
        return fullest_of(self.paged, moment.time, moment.op, held)
