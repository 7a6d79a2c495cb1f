"""One simulated step: the walk over ops, and the moves between them.

Order of things before op ``i`` (``docs/decisions`` has the reasons): the moves at ``i`` are issued; tensors
that the op lacks and its new outputs take their space, waiting for offloads to leave where they must; then
prefetches that were issued earlier take what space is left, first come first served; then compute waits for
the op's inputs to arrive and runs. Tensors are freed after their last need.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from experiments.memory.interface.plan import InPlace, MemoryMove, MemoryPlan, PlaceTensor
from experiments.memory.interface.policy import ReactiveMemoryPolicy
from experiments.memory.interface.space import MemoryPool
from experiments.memory.simulator.channels import TierChannels
from experiments.memory.simulator.clock import StepClock
from experiments.memory.simulator.compute_lane import ComputeLane, Process
from experiments.memory.simulator.device_memory import DeviceMemory, lacking
from experiments.memory.simulator.host_lane import HostLane
from experiments.memory.simulator.moves import CARRY, SETTINGS, carry_out, settle_in_place
from experiments.memory.simulator.pools.allocator import NOWHERE, SCRATCH
from experiments.memory.simulator.prepared import Prepared
from experiments.memory.simulator.recorder import UNWATCHED, RunRecorder, fullest_of_tensors
from experiments.memory.simulator.report import MemorySimulation, clip
from experiments.memory.simulator.residency import Residency
from experiments.memory.simulator.tier_copies import AWAY, DEVICE, QUEUED, UNBORN, TierCopies


class StepRun:
    """A plan carried out on a device with its memory, its copies, its compute lane and the host's.

    - ``seconds``, ``workspace``: of each op under the plan.
    - ``touched``: the tensors that each op needs on the device; ``in_place``: the ops that use others where
      they lie.
    - ``placed``: where persistent tensors are that are not on the device alone when the step begins.
    - ``until``: the tensors that leave when an op has ended, by op.
    - ``logged``: what logs take on their tiers until the step ends.
    - ``first``: the first of several steps in a row.
    """

    def __init__(
        self,
        prepared: Prepared,
        plan: MemoryPlan,
        policy: ReactiveMemoryPolicy | None = None,
        recorder: RunRecorder = UNWATCHED,
        channels: TierChannels | None = None,
    ) -> None:
        self.s, self.plan, self.recorder = prepared, plan, recorder
        self.synchronous = prepared.machine.synchronous
        self.is_alone = channels is None and not recorder.watches
        self.clock = StepClock(prepared.step)
        pool = plan.space if isinstance(plan.space, MemoryPool) else None
        self.memory = DeviceMemory(prepared, pool, self.clock, recorder)
        channels = channels or TierChannels(prepared.machine)
        self.copies = TierCopies(prepared, self.memory, channels, self.clock)
        self.lane = ComputeLane(self.copies, self.clock, recorder)
        self.residency = Residency(self.lane, policy, plan.reactive)
        self.host = HostLane(prepared, self.copies, self.clock)
        self.seconds, self.workspace = list(prepared.seconds), list(prepared.workspace)
        self.touched = list(prepared.touched)
        self.in_place: dict[int, InPlace] = {}
        self.placed: dict[int, PlaceTensor] = {}
        self.until: dict[int, list[int]] = defaultdict(list)
        self.logged: list[tuple[float, str]] = []
        self.recompute_time = self.recompute_flops = self.codec_time = 0.0
        self.first: MemorySimulation | None = None

    def walk(self, iterations: int = 1) -> Process:
        """The step, so many times; yields the times that it goes on at."""
        by_op = self._prepare()
        dying = self.s.deaths(self.plan)
        if iterations > 1:
            self.host.owe_updates(self.seconds)
        for iteration in range(iterations):
            if iteration:
                self.first = self.first or self.report()
                self._restart()
            yield from self._step(by_op, dying)
        if iterations == 1:
            yield from self._drain()

    def _prepare(self) -> Mapping[int, Sequence[MemoryMove]]:
        """Moves by op; what holds for the whole step is set, and persistent tensors are in their places."""
        by_op: dict[int, list[MemoryMove]] = defaultdict(list)
        for move in self.plan.moves:
            kind = type(move)
            if kind in CARRY:
                by_op[move.at].append(move)
            else:
                SETTINGS[kind](self, move)
        for tensor in self.s.persistent:
            self._settle_in(tensor)
        memory = self.memory
        if memory.used > memory.capacity:
            missing = memory.used - memory.capacity
            raise lacking(missing, self.clock.place(), "persistent tensors", memory.capacity)
        return by_op

    def _settle_in(self, tensor: int) -> None:
        """A persistent tensor is resident where the step begins with it."""
        memory, copies = self.memory, self.copies
        if tensor in self.placed:
            place = self.placed[tensor]
            copies.store(tensor, place.tier, 1.0)
            if not place.copy:
                copies.state[tensor] = AWAY
                return
            copies.kept.add(tensor)
        if memory.pool:
            address = memory.find(tensor)
            if address is None:
                raise memory.no_hole(memory.size[tensor])
            memory.address[tensor] = address
        memory.take(tensor, memory.size[tensor])
        copies.state[tensor] = DEVICE

    def _restart(self) -> None:
        """The next step begins: copies and ops of the host that are in flight go on."""
        done = self.clock.now
        self.host.restart(done)
        self.recompute_time = self.recompute_flops = self.codec_time = 0.0
        while self.logged:
            self.copies.tiers.unstore(*self.logged.pop())
        self.residency.restart(done)
        self.copies.restart(done)
        self.lane.restart()
        self.memory.restart()
        self.clock.restart()
        self.recorder.restart()

    def _step(self, by_op: Mapping[int, Sequence[MemoryMove]], dying: Mapping[int, Sequence[int]]) -> Process:
        free, host_ops = self.copies.free, self.host.ops
        count = len(self.seconds)
        for op in range(count):
            if op in by_op:
                yield from carry_out(self, by_op[op], op)
            if 2 * op in dying:
                free(dying[2 * op])
            if op in host_ops:
                yield from self._op_on_host(op)
            elif not self._runs_at_once(op):
                yield from self._op(op, self.seconds[op], self.workspace[op])
            if op in self.until:
                self.copies.release(self.until.pop(op))
            if 2 * op + 1 in dying:
                free(dying[2 * op + 1])
        yield from carry_out(self, by_op.get(count, ()), count)
        free(dying.get(2 * count, ()))

    def _op_on_host(self, op: int) -> Process:
        self.clock.at = op
        if self.copies.queue:
            self.copies.admit()
        self.host.run(op, self.seconds[op], self.workspace[op])
        if self.synchronous and self.host.free > self.clock.now:
            yield from self.lane.stall_until(self.host.free, "host")

    def _runs_at_once(self, op: int) -> bool:
        """Carry out an op that waits for nothing while no copy ends; False, and it is left, for any other.

        Most ops are such, and nobody has to hear of them where no other device shares the link.
        """
        clock, copies, memory = self.clock, self.copies, self.memory
        end, workspace, state = clock.now + self.seconds[op], self.workspace[op], copies.state
        if copies.queue or op in self.in_place or not self.is_alone:
            return False
        if copies.leaving and copies.leaving[0].time <= end:
            return False
        new = []
        for tensor in self.touched[op]:
            if state[tensor] == UNBORN:
                new.append(tensor)
            elif state[tensor] != DEVICE:
                return False
        clock.at = op
        if (new or workspace) and not memory.occupy(new, workspace):
            return False
        for tensor in new:
            state[tensor] = DEVICE
        if copies.kept:
            for tensor in self.s.lineage.writes[op]:
                copies.void(tensor)
        clock.now = end
        if workspace:
            memory.give(SCRATCH, workspace, NOWHERE)
        if self.residency.policy:
            self.residency.remember(self.touched[op], new, self.seconds[op])
        return True

    def _op(self, op: int, seconds: float, workspace: int) -> Process:
        self.clock.at = op
        copies = self.copies
        touched, state = self.touched[op], copies.state
        if op in self.in_place:
            yield from settle_in_place(self, self.in_place[op])
        absent = [tensor for tensor in touched if state[tensor] != DEVICE]
        new = [tensor for tensor in absent if state[tensor] == UNBORN]
        address = NOWHERE
        if absent or workspace:
            coming = (yield from self.residency.gather(touched)) if len(new) < len(absent) else ()
            if not self.memory.occupy(new, workspace):
                address = yield from self.residency.claim(new, workspace, touched)
            if copies.queue:
                copies.admit()
            if coming:
                yield from self.lane.arrive(coming)
            for tensor in absent:
                state[tensor] = DEVICE
        elif copies.queue:
            copies.admit()
        if copies.kept:
            for tensor in self.s.lineage.writes[op]:
                copies.void(tensor)
        yield from self.lane.compute(seconds, "op", op)
        if workspace:
            self.memory.give(SCRATCH, workspace, address)
        if self.residency.policy:
            self.residency.remember(touched, new, seconds)

    def _drain(self) -> Process:
        """The last copies, and what the host was asked for, come to their ends."""
        self.clock.at = len(self.seconds)
        copies = self.copies
        for tensor in list(copies.queue):
            if copies.state[tensor] == QUEUED:
                yield from self.residency.fetch_now(tensor, ())
        while (end := max(copies.channels.end, self.host.free)) > self.clock.now:
            yield from self.lane.stall_until(end, "drain")

    def report(self) -> MemorySimulation:
        """What the step came to."""
        now, memory, tiers, channels = self.clock.now, self.memory, self.copies.tiers, self.copies.channels
        self.recorder.keep(fullest_of_tensors)
        ideal = 0.0
        for value in self.s.seconds:
            ideal += value
        return MemorySimulation(
            peak_bytes=memory.peak,
            host_peak=round(tiers.peaks["host"]),
            step_time=now,
            ideal_time=ideal,
            recompute_time=self.recompute_time,
            recompute_flops=self.recompute_flops,
            codec_time=self.codec_time,
            stalls=self.lane.stalls,
            moved_bytes=channels.moved,
            transfers=channels.spans_until(now),
            idle=self.lane.idle,
            log=memory.log,
            late=self.lane.late,
            host_busy=clip(now, self.host.spans),
            peaks={tier: round(most) for tier, most in tiers.peaks.items()},
            pool_bytes=memory.pool.end if memory.pool else None,
            wasted_bytes=memory.pool.wasted if memory.pool else None,
            first=self.first,
        )
