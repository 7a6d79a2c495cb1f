"""The host's processor: one lane that runs ops on tensors in its memory, concurrent with the device's
compute.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.core.errors import Infeasible
from experiments.memory.interface.plan import OnHost
from experiments.memory.simulator.clock import StepClock
from experiments.memory.simulator.prepared import Prepared
from experiments.memory.simulator.report import Spans
from experiments.memory.simulator.tier_copies import (
    AWAY,
    COMING,
    DEVICE,
    QUEUED,
    STATES,
    UNBORN,
    TierCopies,
)


class HostLane:
    """``free`` is when the host has done all that was asked of it so far, ``spans`` when it was busy.

    ``ops`` are the ops that run here; ``next_version`` when what late ops wrote, which holds from the next
    step on, is complete, and ``this_version`` when that of this step is, once it is being replaced. Where the
    host is the device itself (a synchronous machine), compute stalls for it.
    """

    def __init__(self, prepared: Prepared, copies: TierCopies, clock: StepClock) -> None:
        self.s, self.copies, self.clock = prepared, copies, clock
        self.free = 0.0
        self.spans: Spans = []
        self.ops: dict[int, OnHost] = {}
        self.next_version: dict[int, float] = {}
        self.this_version: dict[int, float] = {}

    def restart(self, done: float) -> None:
        """Ops in flight go on in the new step, which begins where the old one was ``done``."""
        self.free = max(0.0, self.free - done)
        self.spans = [(max(0.0, start - done), end - done) for start, end in self.spans if end > done]
        self.next_version = {tensor: time - done for tensor, time in self.next_version.items()}
        self.this_version = {}

    def owe_updates(self, seconds: Sequence[float]) -> None:
        """Many steps with late ops: what two steps before the first left to the host is still to be done.

        So the host is as far behind as it can be. A faster one catches up at once, while a slower one would
        fall behind by its small share of a step in each, and only then be waited for.
        """
        copies = self.copies
        late = sorted(op for op, move in self.ops.items() if move.late)
        for _ in range(2):
            self.this_version = {}
            for op in late:
                self.spans.append((self.free, self.free + seconds[op]))
                self.free += seconds[op]
                for tensor in self.s.lineage.writes[op]:
                    before = self._replace_version(tensor, self.free)
                    copies.copied[tensor] = copies.host_made[tensor] = before
        self.this_version = {}

    def run(self, op: int, seconds: float, workspace: int) -> None:
        """Queue op ``op`` on the host's processor; the device goes on at once."""
        copies, state = self.copies, self.copies.state
        through = self.ops[op].through
        born = {tensor for tensor in self.s.touched[op] if state[tensor] == UNBORN}
        read = [tensor for tensor in self.s.lineage.reads[op] if tensor not in born]
        start = max([self.clock.now, self.free, *(self._copied_since(tensor, through) for tensor in read)])
        self.free = end = start + seconds
        self.spans.append((start, end))
        sizes = copies.memory.size
        copies.channels.moved["read"] += sum(sizes[t] for t in read if not copies.resident_on(t, "host"))
        for tensor in dict.fromkeys((*born, *self.s.lineage.writes[op])):
            self._write(op, tensor, end)
        for tensor in self.s.touched[op]:
            copies.held[tensor] = end
        if workspace:
            copies.hold_until(end, workspace, "host")

    def _write(self, op: int, tensor: int, end: float) -> None:
        """Op ``op`` has written ``tensor`` at ``end``: where it streams from, otherwise in host memory."""
        through, copies = self.ops[op].through, self.copies
        tier = through if copies.resident_on(tensor, through) else "host"
        copies.channels.moved["write"] += copies.memory.size[tensor] if tier != "host" else 0
        self._make_current(tensor, tier, self._version_after(tensor, tier, end) if self.ops[op].late else end)

    def _version_after(self, tensor: int, tier: str, end: float) -> float:
        """When the version before the one of a late op, good for one more step, is complete."""
        before = self._replace_version(tensor, end)
        if self.copies.state[tensor] in (DEVICE, COMING):
            self.copies.hold_until(end, self.copies.memory.size[tensor], tier)
        return before

    def _replace_version(self, tensor: int, end: float) -> float:
        """Have the next version complete at ``end``; return when the one of this step is, however often
        late ops write the tensor in one step.
        """
        before = self.this_version.setdefault(tensor, self.next_version.get(tensor, self.clock.now))
        self.next_version[tensor] = end
        return before

    def _copied_since(self, tensor: int, through: str) -> float:
        """When the host, or the tier it streams from, has the copy of ``tensor`` that an op there reads."""
        copies = self.copies
        if not copies.resident_on(tensor, "host") and not copies.resident_on(tensor, through):
            state = STATES[copies.state[tensor]]
            what = f"runs on the host, where tensor {tensor} has no copy: {state}"
            raise Infeasible(what, self.clock.place())
        return copies.copied[tensor]

    def _make_current(self, tensor: int, tier: str, time: float) -> None:
        """The copy on ``tier`` is the good one, complete at ``time``; what is resident elsewhere is void."""
        copies = self.copies
        if copies.state[tensor] in (DEVICE, COMING):
            copies.memory.clear(tensor)
        if not copies.resident_on(tensor, tier):
            if tensor in copies.away:
                copies.unstore(tensor)
            copies.store(tensor, tier, 1.0)
        if copies.state[tensor] != QUEUED:
            copies.state[tensor] = AWAY
        copies.kept.discard(tensor)
        copies.copied[tensor] = copies.host_made[tensor] = time
