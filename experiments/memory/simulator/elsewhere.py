"""Ops that do not run on device memory: on the host's processor, or on tensors where they lie on their tier."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.core.errors import Infeasible
from experiments.memory.interface import plan as moves
from experiments.memory.interface.plan import MemoryPlan
from experiments.memory.interface.policy import ReactiveMemoryPolicy
from experiments.memory.simulator.copies import AWAY, COMING, DEVICE, QUEUED, STATES, UNBORN
from experiments.memory.simulator.moves import Moves
from experiments.memory.simulator.prepared import Prepared
from experiments.memory.simulator.report import Spans
from experiments.memory.simulator.space import Process


class Elsewhere(Moves):
    """The host's processor is one lane: ``host_free`` is when it has done all that was asked of it so far. Where it is
    the device's own (a synchronous machine), the device waits for it.

    ``touched`` are the tensors that each op needs on the device; ``next_version`` when what a late op wrote, which
    holds from the next step on, is complete.
    """

    def __init__(self, prepared: Prepared, plan: MemoryPlan, policy: ReactiveMemoryPolicy | None) -> None:
        super().__init__(prepared, plan, policy)
        self.host_free = 0.0
        self.host_spans: Spans = []
        self.host_ops: dict[int, moves.OnHost] = {}
        self.next_version: dict[int, float] = {}
        self.in_place: dict[int, moves.InPlace] = {}
        self.touched = list(prepared.touched)

    def restart(self) -> None:
        done = self.now
        self.host_free = max(0.0, self.host_free - done)
        self.host_spans = [
            (max(0.0, start - done), end - done) for start, end in self.host_spans if end > done
        ]
        self.next_version = {tensor: time - done for tensor, time in self.next_version.items()}
        super().restart()

    def owe_updates(self, seconds: Sequence[float]) -> None:
        """Many steps with late ops: what two steps before the first left to the host is still to be done.

        So the host is as far behind as it can be. A faster one catches up at once, while a slower one would fall
        behind by its small share of a step in each, and only then be waited for.
        """
        late = sorted(op for op, move in self.host_ops.items() if move.late)
        for op in (*late, *late):
            self.host_spans.append((self.host_free, self.host_free + seconds[op]))
            self.host_free += seconds[op]
            for tensor in self.s.lineage.writes[op]:
                self.copied[tensor] = self.host_made[tensor] = self.next_version.get(tensor, 0.0)
                self.next_version[tensor] = self.host_free

    def on_host(self, op: int, seconds: float, workspace: int) -> None:
        """Queue op ``op`` on the host's processor; the device goes on at once."""
        self.at = op
        through, late = self.host_ops[op].through, self.host_ops[op].late
        born = {tensor for tensor in self.s.touched[op] if self.state[tensor] == UNBORN}
        read = [tensor for tensor in self.s.lineage.reads[op] if tensor not in born]
        start = max([self.now, self.host_free, *(self._there_since(tensor, through) for tensor in read)])
        self.host_free = end = start + seconds
        self.host_spans.append((start, end))
        self.channels.moved["read"] += sum(self.size[t] for t in read if not self._on_host(t))
        for tensor in dict.fromkeys((*born, *self.s.lineage.writes[op])):
            tier = through if self._lies_on(tensor, through) else "host"
            self.channels.moved["write"] += self.size[tensor] if tier != "host" else 0
            self._now_on(tensor, tier, self._version_after(tensor, tier, end) if late else end)
        for tensor in self.s.touched[op]:
            self.held[tensor] = end
        if workspace:
            self.hold_until(end, workspace, "host")

    def _version_after(self, tensor: int, tier: str, end: float) -> float:
        """A late op writes ``tensor`` until ``end``: when the version before it, good for one more step, is complete."""
        before = self.next_version.get(tensor, self.now)
        self.next_version[tensor] = end
        if self.state[tensor] in (DEVICE, COMING):
            self.hold_until(end, self.size[tensor], tier)
        return before

    def _there_since(self, tensor: int, through: str) -> float:
        """When the host, or the tier it streams from, has the copy of ``tensor`` that an op there reads."""
        if not self._on_host(tensor) and not self._lies_on(tensor, through):
            state = STATES[self.state[tensor]]
            raise Infeasible(f"runs on the host, where tensor {tensor} has no copy: {state}", self.place())
        return self.copied[tensor]

    def _on_host(self, tensor: int) -> bool:
        return self._lies_on(tensor, "host")

    def _lies_on(self, tensor: int, tier: str) -> bool:
        return tensor in self.away and self.away[tensor][0] == tier

    def _now_on(self, tensor: int, tier: str, time: float) -> None:
        """The copy on ``tier`` is the good one, complete at ``time``; what lies elsewhere is void."""
        if self.state[tensor] in (DEVICE, COMING):
            self.clear(tensor)
        if not self._lies_on(tensor, tier):
            if tensor in self.away:
                self.unstore(tensor)
            self.store(tensor, tier, 1.0)
        if self.state[tensor] != QUEUED:
            self.state[tensor] = AWAY
        self.kept.discard(tensor)
        self.copied[tensor] = self.host_made[tensor] = time

    def uses_in_place(self, move: moves.InPlace) -> None:
        """The op of ``move`` needs the tensors of ``move`` where they lie, and the others on the device."""
        self.in_place[move.at] = move
        self.touched[move.at] = [t for t in self.s.touched[move.at] if t not in move.tensors]

    def settle_in_place(self, move: moves.InPlace) -> Process:
        """Wait until the tensors of ``move`` are on their tier; those that are not born are made there."""
        for tensor in move.tensors:
            if self.state[tensor] == UNBORN:
                self.store(tensor, move.tier, 1.0)
                self.state[tensor] = AWAY
            elif self.state[tensor] != AWAY:
                state = STATES[self.state[tensor]]
                raise Infeasible(f"cannot use tensor {tensor} in place: {state}", self.place())
            while self.copied[tensor] > self.now:
                yield from self.stand_still(self.copied[tensor], "transfer")
