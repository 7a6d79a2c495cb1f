"""The moves of a plan, carried out between ops: copies, waits, drops, reruns and codecs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from experiments.core.errors import Infeasible
from experiments.memory.interface import plan as moves
from experiments.memory.interface.plan import MemoryPlan, Move
from experiments.memory.interface.policy import ReactiveMemoryPolicy
from experiments.memory.simulator.copies import AWAY, COMING, DEVICE, GONE, QUEUED, STATES
from experiments.memory.simulator.device import WORKSPACE, lacking
from experiments.memory.simulator.prepared import Prepared
from experiments.memory.simulator.space import Process, Space


class Moves(Space):
    """``until`` are the tensors that leave when an op has ended, by op; the times and FLOPs spent on what moves ask;
    ``logged`` what logs take on their tiers until the step ends.
    """

    def __init__(self, prepared: Prepared, plan: MemoryPlan, policy: ReactiveMemoryPolicy | None) -> None:
        super().__init__(prepared, plan, policy)
        self.until: dict[int, list[int]] = defaultdict(list)
        self.recompute_time = self.recompute_flops = self.codec_time = 0.0
        self.logged: list[tuple[float, str]] = []
        self.carry: dict[str, Callable[[Any], Process]] = {
            "offload": self._offload,
            "prefetch": self._prefetch,
            "wait": self._wait,
            "drop": self._drop,
            "recompute": self._recompute,
            "compress": self._compress,
            "decompress": self._decompress,
            "log": self._log,
        }

    def restart(self) -> None:
        self.recompute_time = self.recompute_flops = self.codec_time = 0.0
        while self.logged:
            self.tiers.unstore(*self.logged.pop())
        super().restart()

    def carry_out(self, todo: Sequence[Move], op: int) -> Process:
        """The moves at ``op``, in the order listed."""
        self.at = op
        for move in todo:
            yield from self.carry[move.action](move)

    def _offload(self, move: moves.Offload) -> Process:
        tensor = move.tensor
        yield from self._bring(tensor, "offload")
        self.start_copy(tensor, move.tier, move.ratio)
        if self.s.machine.synchronous and self.copied[tensor] > self.now:
            yield from self.stand_still(self.copied[tensor], "synchronization")
        if move.until >= move.at:
            self.departing.add(tensor)
            self.until[move.until].append(tensor)
        else:
            self.release([tensor])

    def _prefetch(self, move: moves.Prefetch) -> Process:
        if self.state[move.tensor] != AWAY:
            state = STATES[self.state[move.tensor]]
            raise Infeasible(f"cannot prefetch tensor {move.tensor}: {state}", self.place())
        self.state[move.tensor] = QUEUED
        if move.keep:
            self.kept.add(move.tensor)
        if self.s.machine.synchronous:
            yield from self.fetch_now(move.tensor, ())
            yield from self.stand_still(self.arrival[move.tensor], "synchronization")
        else:
            self.queue.append(move.tensor)

    def _wait(self, move: moves.Wait) -> Process:
        """Only for a copy under way: a prefetch that still lacks space is not waited for, it could wait for ever."""
        tensor = move.tensor
        ends = self.arrival if self.state[tensor] == COMING else self.copied
        if self.state[tensor] != QUEUED and ends[tensor] > self.now:
            while ends[tensor] > self.now:
                yield from self.stand_still(ends[tensor], "synchronization")
        else:
            yield from self.settle(self.now)

    def _log(self, move: moves.Log) -> Process:
        """The log is written while compute goes on; a copy of the tensor that is under way there counts as well."""
        tensor = move.tensor
        if self.state[tensor] not in (DEVICE, AWAY):
            raise Infeasible(f"cannot log tensor {tensor}: {STATES[self.state[tensor]]}", self.place())
        lies_there = self.state[tensor] == AWAY and self.away[tensor][0] == move.tier
        ready = max(self.now, self.copied[tensor])
        if lies_there:
            end = self.channels.beyond(move.bytes, move.tier, "out", ready)
        else:
            end = self.channels.out(move.bytes, move.tier, ready)
        missing = self.tiers.store(move.bytes, move.tier)
        if missing:
            raise lacking(missing, self.place(), move.tier, self.tiers.room[move.tier])
        self.logged.append((move.bytes, move.tier))
        self.copied[tensor] = end
        yield self.now

    def _drop(self, move: moves.Drop) -> Process:
        yield from self._bring(move.tensor, "drop")
        self.clear(move.tensor)
        self.void(move.tensor)
        self.state[move.tensor] = GONE

    def _bring(self, tensor: int, what: str) -> Process:
        """A prefetch under way, or one that has found no space yet, is completed before another move."""
        if self.state[tensor] == QUEUED:
            yield from self.fetch_now(tensor, (tensor,))
        if self.state[tensor] == COMING:
            yield from self.arrive([tensor])
            self.state[tensor] = DEVICE
        if self.state[tensor] != DEVICE:
            raise Infeasible(f"cannot {what} tensor {tensor}: {STATES[self.state[tensor]]}", self.place())

    def _recompute(self, move: moves.Recompute) -> Process:
        here = {t for t, state in enumerate(self.state) if state in (DEVICE, COMING, QUEUED)}
        last = {t: op for op in move.ops for t in self.s.touched[op]}
        for op in move.ops:
            yield from self._rerun(op, here, set(move.keep), [t for t, end in last.items() if end == op])
        self.recompute_flops += sum([self.s.flops[op] for op in move.ops])

    def _rerun(self, op: int, here: set[int], keep: set[int], ending: Sequence[int]) -> Process:
        """Run ``op`` again: new outputs, second copies of those still ``here``, and frees within the list."""
        touched, state = self.s.touched[op], self.state
        coming = yield from self.gather([t for t in touched if t in here])
        written = list(dict.fromkeys(self.s.lineage.writes[op]))
        new = [t for t in written if t not in here and state[t] != DEVICE]
        scratch = sum([self.size[t] for t in written if t in here]) + self.s.workspace[op]
        address = yield from self.claim(new, scratch, touched)
        self.admit()
        yield from self.arrive(coming)
        for tensor in touched:
            if state[tensor] == COMING:
                state[tensor] = DEVICE
        yield from self.compute(self.s.seconds[op])
        self.recompute_time += self.s.seconds[op]
        if scratch:
            self.give(scratch, WORKSPACE, address)
        self.free([t for t in ending if t not in here and t not in keep and state[t] == DEVICE])

    def _compress(self, move: moves.Compress) -> Process:
        size = max(1, round(self.s.sizes[move.tensor] / move.ratio))
        yield from self._recode(move.tensor, size, move.seconds)

    def _decompress(self, move: moves.Decompress) -> Process:
        yield from self._recode(move.tensor, self.s.sizes[move.tensor], move.seconds)

    def _recode(self, tensor: int, size: int, seconds: float) -> Process:
        """Both forms are on the device while the codec runs."""
        coming = yield from self.gather([tensor])
        plain, before = self.size[tensor], self.address[tensor]
        self.size[tensor] = size
        yield from self.claim([tensor], 0, [tensor])
        yield from self.arrive(coming)
        yield from self.compute(seconds)
        self.codec_time += seconds
        self.give(plain, self.s.kinds[tensor], before)
        self.void(tensor)
