"""The simulated step: one compute lane, four channels, one pool of device bytes with a capacity.

Order of things before op ``i`` (``docs/decisions`` has the reasons): the moves at ``i`` are issued; tensors that the
op lacks and its new outputs take their space, waiting for offloads to leave where they must; then prefetches that
were issued earlier take what space is left, first come first served; then compute waits for the op's inputs to
arrive and runs. Tensors are freed after their last need.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from experiments.core.errors import BadInput, Infeasible
from experiments.memory.interface import plan as moves
from experiments.memory.interface.machine import Estimate, Machine
from experiments.memory.interface.plan import MemoryPlan, Move
from experiments.memory.interface.policy import ReactiveMemoryPolicy, Resident
from experiments.memory.interface.rerun import Lineage
from experiments.memory.simulator.channels import Channels
from experiments.memory.simulator.report import CAUSES, TIMELINE, Simulation, Spans
from experiments.workloads.step import Step

UNBORN, DEVICE, AWAY, QUEUED, COMING, GONE = range(6)
STATES = ("not yet produced", "on the device", "on a tier", "queued", "coming", "gone")
WORKSPACE = TIMELINE.index("workspace")


class Simulator:
    """Simulates plans for one step on one machine; what does not depend on the plan is prepared once."""

    def __init__(self, step: Step, machine: Machine) -> None:
        if np.isnan(step.ops.seconds).any():
            raise BadInput("the step has no op times", step.name, "a timed step")
        self.step, self.machine = step, machine
        self.seconds: list[float] = step.ops.seconds.tolist()
        self.workspace: list[int] = step.ops.workspace.tolist()
        self.sizes: list[int] = step.tensors.bytes.tolist()
        self.kinds: list[int] = step.tensors.kind.tolist()
        self.touched: list[list[int]] = [row.tolist() for row in step.touched]
        self.persistent: list[int] = np.nonzero(step.persistent)[0].tolist()
        self.flops: list[float] = step.ops.flops.tolist()
        self.lineage = Lineage(step)

    def run(self, plan: MemoryPlan, policy: ReactiveMemoryPolicy | None = None) -> Simulation:
        """One step under ``plan``; ``Infeasible`` names the op that does not fit and the bytes that are missing."""
        return _Run(self, plan, policy).run()

    def estimate(self, plan: MemoryPlan) -> Estimate:
        """A trial: what ``run`` would give, or why it does not fit."""
        try:
            return self.run(plan).estimate
        except Infeasible as error:
            return Estimate(False, reason=str(error))


class _Run:
    """The state of one simulated step. ``leaving`` holds (time, sequence, device bytes, host bytes, tensor) of copies
    under way; ``arrival`` and ``copied`` are when a tensor is on the device and on its tier.
    """

    def __init__(self, simulator: Simulator, plan: MemoryPlan, policy: ReactiveMemoryPolicy | None) -> None:
        self.s, self.plan, self.policy = simulator, plan, policy
        self.capacity = simulator.machine.capacity
        self.channels = Channels(simulator.machine)
        count = len(simulator.sizes)
        self.size = list(simulator.sizes)
        self.state = [UNBORN] * count
        self.arrival, self.copied = [0.0] * count, [0.0] * count
        self.away: dict[int, tuple[str, float]] = {}
        self.now, self.used, self.peak = 0.0, 0, 0
        self.stored = {"host": 0.0, "storage": 0.0}
        self.host_peak = 0.0
        self.leaving: list[tuple[float, int, int, float, int]] = []
        self.sequence = 0
        self.queue: deque[int] = deque()
        self.until: dict[int, list[tuple[float, int]]] = defaultdict(list)
        self.departing: set[int] = set()
        self.stalls = dict.fromkeys(CAUSES, 0.0)
        self.idle: Spans = []
        self.log: list[tuple[float, int, int]] = []
        self.recompute_time = self.recompute_flops = self.codec_time = 0.0
        self.last_used = [0.0] * count
        self.produced = [0.0] * count
        self.cost = [0.0] * count
        self.carry: dict[str, Callable[[Any], None]] = {
            "offload": self._offload,
            "prefetch": self._prefetch,
            "wait": self._wait,
            "drop": self._drop,
            "recompute": self._recompute,
            "compress": self._compress,
            "decompress": self._decompress,
        }

    # --- the walk -------------------------------------------------------------------------------------------

    def run(self) -> Simulation:
        seconds, workspace, by_op = self._prepare()
        dying = self._deaths()
        count = len(seconds)
        for op in range(count):
            if op in by_op:
                self._moves(by_op[op], op)
            self._free(dying.get(2 * op, ()))
            self._op(op, seconds[op], workspace[op])
            if op in self.until:
                self._release(self.until.pop(op))
            self._free(dying.get(2 * op + 1, ()))
        self._moves(by_op.get(count, ()), count)
        self._drain(count)
        ideal = 0.0
        for value in self.s.seconds:
            ideal += value
        return self._report(ideal)

    def _prepare(self) -> tuple[list[float], list[int], dict[int, list[Move]]]:
        """Op times and workspaces under the plan, moves by op; persistent tensors in their places."""
        seconds, workspace = list(self.s.seconds), list(self.s.workspace)
        by_op: dict[int, list[Move]] = defaultdict(list)
        placed: dict[int, str] = {}
        for move in self.plan.moves:
            if isinstance(move, moves.Algorithm):
                seconds[move.at], workspace[move.at] = move.seconds, move.workspace
            elif isinstance(move, moves.Place):
                placed[move.tensor] = move.tier
            else:
                by_op[move.at].append(move)
        for tensor in self.s.persistent:
            if tensor in placed:
                self._store(tensor, placed[tensor], 1.0)
                self.state[tensor] = AWAY
            else:
                self._take(self.size[tensor], self.s.kinds[tensor])
                self.state[tensor] = DEVICE
        if self.used > self.capacity:
            raise _lacking(
                self.used - self.capacity, "start of the step", "persistent tensors", self.capacity
            )
        return seconds, workspace, by_op

    def _deaths(self) -> dict[int, list[int]]:
        last = self.s.lineage.last_need(self.plan)
        last[self.s.persistent] = -1
        dying: dict[int, list[int]] = defaultdict(list)
        for tensor, when in enumerate(last.tolist()):
            if when >= 0:
                dying[when].append(tensor)
        return dying

    def _moves(self, todo: Iterable[Move], op: int) -> None:
        self.at = op
        for move in todo:
            self.carry[move.action](move)

    def _op(self, op: int, seconds: float, workspace: int) -> None:
        self.at = op
        touched, state = self.s.touched[op], self.state
        new = [tensor for tensor in touched if state[tensor] == UNBORN]
        ready = self._gather(touched)
        self._obtain(sum([self.size[tensor] for tensor in new]) + workspace, touched)
        for tensor in new:
            self._take(self.size[tensor], self.s.kinds[tensor])
            state[tensor] = DEVICE
        if workspace:
            self._take(workspace, WORKSPACE)
        self._admit()
        if ready > self.now:
            self._stand_still(ready, "transfer")
        for tensor in touched:
            state[tensor] = DEVICE
        self._compute(seconds)
        if workspace:
            self._take(-workspace, WORKSPACE)
        if self.policy:
            self._remember(touched, new, seconds)

    def _gather(self, touched: Sequence[int]) -> float:
        """Start what ``touched`` still needs from a tier; when the last of it is there."""
        ready = self.now
        for tensor in touched:
            state = self.state[tensor]
            if state == AWAY and self.plan.reactive:
                state = self.state[tensor] = QUEUED
            if state == QUEUED:
                self._obtain(self.size[tensor], touched)
                self._fetch(tensor)
                state = COMING
            if state == COMING:
                ready = max(ready, self.arrival[tensor])
            elif state not in (UNBORN, DEVICE):
                name = self.s.step.tensors.name[tensor]
                raise Infeasible(f"needs tensor {tensor} ({name}), which is {STATES[state]}", self._place())
        return ready

    def _compute(self, seconds: float) -> None:
        end = self.now + seconds
        self._settle(end)
        self.now = end

    def _stand_still(self, time: float, cause: str) -> None:
        """Compute waits until ``time``; space that comes free meanwhile goes to waiting prefetches."""
        if time == float("inf"):
            raise Infeasible("waits for a transfer that never ends (zero bandwidth)", self._place())
        self.stalls[cause] += time - self.now
        self.idle.append((self.now, time))
        self._settle(time)
        self.now = time

    def _settle(self, time: float) -> None:
        """Let every copy that ends by ``time`` give its space back, in order."""
        while self.leaving and self.leaving[0][0] <= time:
            self.now = max(self.now, self.leaving[0][0])
            self._leave()
            self._admit()

    def _leave(self) -> None:
        _, _, device, host, tensor = heapq.heappop(self.leaving)
        if device:
            self._take(-device, self.s.kinds[tensor])
        if host:
            self._unstore(tensor)

    def _drain(self, count: int) -> None:
        self.at = count
        for tensor in list(self.queue):
            if self.state[tensor] == QUEUED:
                self._obtain(self.size[tensor], ())
                self._fetch(tensor)
        end = self.channels.end
        if end > self.now:
            self._stand_still(end, "drain")

    # --- device and host bytes ------------------------------------------------------------------------------

    def _take(self, size: int, kind: int) -> None:
        self.used += size
        self.log.append((self.now, kind, size))
        if self.used > self.peak:
            self.peak = self.used

    def _obtain(self, size: int, locked: Sequence[int]) -> None:
        """Wait until ``size`` bytes are free: for copies on their way out, then for the policy's evictions."""
        while self.used + size > self.capacity:
            if not self.leaving and not self._evicted(self.used + size - self.capacity, locked):
                raise _lacking(
                    self.used + size - self.capacity, self._place(), f"{size} more bytes", self.capacity
                )
            time = self.leaving[0][0]
            if time > self.now:
                if time == float("inf"):
                    raise Infeasible("waits for a transfer that never ends (zero bandwidth)", self._place())
                self.stalls["space"] += time - self.now
                self.idle.append((self.now, time))
                self.now = time
            self._leave()

    def _evicted(self, needed: int, locked: Sequence[int]) -> bool:
        """Ask the policy what leaves; False when it sends nothing."""
        if self.policy is None:
            return False
        held = set(locked) | self.departing
        resident = [
            Resident(t, self.size[t], self.last_used[t], self.produced[t], self.cost[t])
            for t, state in enumerate(self.state)
            if state == DEVICE and t not in held
        ]
        chosen = list(self.policy.evict(needed, resident, self.now))
        for eviction in chosen:
            self._offload(moves.Offload(self.at, eviction.tensor, self.at - 1, eviction.tier))
        return bool(chosen)

    def _remember(self, touched: Sequence[int], new: Sequence[int], seconds: float) -> None:
        for tensor in touched:
            self.last_used[tensor] = self.now
        for tensor in new:
            self.produced[tensor], self.cost[tensor] = self.now, seconds

    def _free(self, tensors: Iterable[int]) -> None:
        for tensor in tensors:
            state = self.state[tensor]
            if state in (DEVICE, COMING) and tensor not in self.departing:
                self._take(-self.size[tensor], self.s.kinds[tensor])
            elif state in (AWAY, QUEUED) and tensor in self.away:
                self._unstore(tensor)
            self.state[tensor] = GONE

    def _store(self, tensor: int, tier: str, ratio: float) -> None:
        size = self.size[tensor] / ratio
        room = self.s.machine.host_bytes if tier == "host" else self.s.machine.storage_bytes
        self.away[tensor] = (tier, size)
        self.stored[tier] += size
        self.host_peak = max(self.host_peak, self.stored["host"])
        if self.stored[tier] > room:
            raise _lacking(self.stored[tier] - room, getattr(self, "at", None) and self._place(), tier, room)

    def _unstore(self, tensor: int) -> None:
        tier, size = self.away.pop(tensor)
        self.stored[tier] -= size

    # --- moves ----------------------------------------------------------------------------------------------

    def _offload(self, move: moves.Offload) -> None:
        tensor = move.tensor
        if self.state[tensor] == COMING:
            self._stand_still(max(self.now, self.arrival[tensor]), "transfer")
        elif self.state[tensor] != DEVICE:
            raise Infeasible(f"cannot offload tensor {tensor}: {STATES[self.state[tensor]]}", self._place())
        self._store(tensor, move.tier, move.ratio)
        end = self.channels.out(self.away[tensor][1], move.tier, self.now)
        self.copied[tensor] = end
        if self.s.machine.synchronous:
            self._stand_still(end, "synchronization")
        if move.until >= move.at:
            self.departing.add(tensor)
            self.until[move.until].append((end, tensor))
        else:
            self._release([(end, tensor)])

    def _release(self, copies: Iterable[tuple[float, int]]) -> None:
        """The last use of these device copies is over: their bytes come free when the copy has ended."""
        for end, tensor in copies:
            self.departing.discard(tensor)
            self.state[tensor] = AWAY
            if end <= self.now:
                self._take(-self.size[tensor], self.s.kinds[tensor])
            else:
                self._push(end, self.size[tensor], 0.0, tensor)

    def _push(self, time: float, device: int, host: float, tensor: int) -> None:
        heapq.heappush(self.leaving, (time, self.sequence, device, host, tensor))
        self.sequence += 1

    def _prefetch(self, move: moves.Prefetch) -> None:
        if self.state[move.tensor] != AWAY:
            state = STATES[self.state[move.tensor]]
            raise Infeasible(f"cannot prefetch tensor {move.tensor}: {state}", self._place())
        self.state[move.tensor] = QUEUED
        if self.s.machine.synchronous:
            self._obtain(self.size[move.tensor], ())
            self._fetch(move.tensor)
            self._stand_still(self.arrival[move.tensor], "synchronization")
        else:
            self.queue.append(move.tensor)

    def _admit(self) -> None:
        """Start queued prefetches, first come first served, while they fit."""
        queue = self.queue
        while queue:
            tensor = queue[0]
            if self.state[tensor] == QUEUED:
                if self.used + self.size[tensor] > self.capacity:
                    return
                self._fetch(tensor)
            queue.popleft()

    def _fetch(self, tensor: int) -> None:
        tier, size = self.away[tensor]
        self._take(self.size[tensor], self.s.kinds[tensor])
        end = self.channels.back(size, tier, max(self.now, self.copied[tensor]))
        self.arrival[tensor] = end
        self.state[tensor] = COMING
        self._push(end, 0, size, tensor)

    def _wait(self, move: moves.Wait) -> None:
        """Only for a copy under way: a prefetch that still lacks space is not waited for, it could wait for ever."""
        state = self.state[move.tensor]
        end = self.arrival[move.tensor] if state == COMING else self.copied[move.tensor]
        if state != QUEUED and end > self.now:
            self._stand_still(end, "synchronization")
        else:
            self._settle(self.now)

    def _drop(self, move: moves.Drop) -> None:
        if self.state[move.tensor] != DEVICE:
            raise Infeasible(
                f"cannot drop tensor {move.tensor}: {STATES[self.state[move.tensor]]}", self._place()
            )
        self._take(-self.size[move.tensor], self.s.kinds[move.tensor])
        self.state[move.tensor] = AWAY if move.tensor in self.away else GONE

    def _recompute(self, move: moves.Recompute) -> None:
        here = {t for t, state in enumerate(self.state) if state in (DEVICE, COMING, QUEUED)}
        last = {t: op for op in move.ops for t in self.s.touched[op]}
        for op in move.ops:
            self._rerun(op, here, set(move.keep), [t for t, end in last.items() if end == op])
        self.recompute_flops += sum([self.s.flops[op] for op in move.ops])

    def _rerun(self, op: int, here: set[int], keep: set[int], ending: Sequence[int]) -> None:
        """Run ``op`` again: new outputs, second copies of those still ``here``, and frees within the list."""
        touched, state = self.s.touched[op], self.state
        ready = self._gather([t for t in touched if t in here])
        written = [] if self.s.lineage.views[op] else self.s.lineage.writes[op]
        new = [t for t in dict.fromkeys(written) if t not in here and state[t] != DEVICE]
        scratch = sum([self.size[t] for t in dict.fromkeys(written) if t in here]) + self.s.workspace[op]
        self._obtain(sum([self.size[t] for t in new]) + scratch, touched)
        for tensor in new:
            self._take(self.size[tensor], self.s.kinds[tensor])
            state[tensor] = DEVICE
        self._take(scratch, WORKSPACE)
        self._admit()
        if ready > self.now:
            self._stand_still(ready, "transfer")
        for tensor in touched:
            if state[tensor] == COMING:
                state[tensor] = DEVICE
        self._compute(self.s.seconds[op])
        self.recompute_time += self.s.seconds[op]
        self._take(-scratch, WORKSPACE)
        self._free([t for t in ending if t not in here and t not in keep and state[t] == DEVICE])

    def _compress(self, move: moves.Compress) -> None:
        self._recode(move.tensor, max(1, round(self.s.sizes[move.tensor] / move.ratio)), move.seconds)

    def _decompress(self, move: moves.Decompress) -> None:
        self._recode(move.tensor, self.s.sizes[move.tensor], move.seconds)

    def _recode(self, tensor: int, size: int, seconds: float) -> None:
        """Both forms are on the device while the codec runs."""
        ready = self._gather([tensor])
        self._obtain(size, [tensor])
        self._take(size, self.s.kinds[tensor])
        if ready > self.now:
            self._stand_still(ready, "transfer")
        self.state[tensor] = DEVICE
        self._compute(seconds)
        self.codec_time += seconds
        self._take(-self.size[tensor], self.s.kinds[tensor])
        self.size[tensor] = size

    # --- the answer -----------------------------------------------------------------------------------------

    def _place(self) -> str:
        ops = self.s.step.ops
        if self.at >= len(ops):
            return "end of the step"
        return f"op {self.at} ({ops.name[self.at]}, {self.s.step.phase_of(self.at)})"

    def _report(self, ideal: float) -> Simulation:
        return Simulation(
            peak_bytes=self.peak,
            host_peak=round(self.host_peak),
            step_time=self.now,
            ideal_time=ideal,
            recompute_time=self.recompute_time,
            recompute_flops=self.recompute_flops,
            codec_time=self.codec_time,
            stalls=self.stalls,
            moved=self.channels.moved,
            transfers=self.channels.spans,
            idle=self.idle,
            log=self.log,
        )


def _lacking(missing: float, where: str | None, what: str, room: float) -> Infeasible:
    place = where or "start of the step"
    return Infeasible(f"{what} do not fit: {missing:.0f} bytes are missing of {room:.0f}", place, missing)
