"""The simulated step: a compute lane, the host's processor, channels between tiers, and device bytes with a capacity.

Order of things before op ``i`` (``docs/decisions`` has the reasons): the moves at ``i`` are issued; tensors that the
op lacks and its new outputs take their space, waiting for offloads to leave where they must; then prefetches that
were issued earlier take what space is left, first come first served; then compute waits for the op's inputs to
arrive and runs. Tensors are freed after their last need.
"""

from __future__ import annotations

import functools
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence

from experiments.core.errors import BadInput, Infeasible
from experiments.memory.interface import plan as moves
from experiments.memory.interface.machine import Estimate, Machine, Split
from experiments.memory.interface.microbatch import in_microbatches
from experiments.memory.interface.plan import MemoryPlan, Move
from experiments.memory.interface.policy import ReactiveMemoryPolicy
from experiments.memory.interface.release import Release
from experiments.memory.interface.space import Paging
from experiments.memory.interface.transform import changes_step, transformed
from experiments.memory.simulator import artifact
from experiments.memory.simulator.allocator import NOWHERE
from experiments.memory.simulator.copies import AWAY, DEVICE, QUEUED, UNBORN
from experiments.memory.simulator.device import WORKSPACE, lacking
from experiments.memory.simulator.elsewhere import Elsewhere
from experiments.memory.simulator.paging import PagedRun
from experiments.memory.simulator.prepared import Prepared
from experiments.memory.simulator.report import Simulation, until
from experiments.memory.simulator.space import Process
from experiments.workloads.step import Step

#: Spaces under which a step is repeated by itself.
REPEATING = (Paging, Release)
#: Steps that are simulated in a row to see a steady one.
ITERATIONS = 4


class Simulator:
    """Simulates plans for one step on one machine; what does not depend on the plan is prepared once.

    ``split`` gives the step in micro-batches; without it the step is cut as a trace is.
    """

    def __init__(self, step: Step, machine: Machine, split: Split | None = None) -> None:
        self.prepared = Prepared(step, machine)
        self.split: Split = split or functools.partial(in_microbatches, step)
        self._latest: tuple[tuple[object, ...], Prepared] = ((), self.prepared)

    def run(
        self, plan: MemoryPlan, policy: ReactiveMemoryPolicy | None = None, iterations: int = 1
    ) -> Simulation:
        """One step under ``plan``; ``Infeasible`` names the op that does not fit and the bytes that are missing.

        With more ``iterations`` the step is repeated: copies under way when one ends go on beside the next. The last
        one is reported, from end to end, and holds the first. A paged device repeats the step by itself.
        """
        prepared = self._transformed(plan)
        if iterations > 1 and isinstance(plan.space, REPEATING):
            raise BadInput(
                f"{iterations} iterations of a plan that repeats its step by itself", "simulation", "1"
            )
        if isinstance(plan.space, Release):
            return artifact.carry_out(prepared.step, prepared.machine, plan, plan.space)
        if isinstance(plan.space, Paging):
            return PagedRun(prepared, plan, plan.space).run()
        run = Run(prepared, plan, policy)
        deque(run.walk(iterations), maxlen=0)
        return run.report()

    def steady(self, plan: MemoryPlan, policy: ReactiveMemoryPolicy | None = None) -> Simulation:
        """One step of many: the single one where it leaves all as it began, otherwise one that others precede.

        A reactive policy may leave parameters on a tier.
        """
        once = self.run(plan, policy)
        if isinstance(plan.space, REPEATING) or not (once.stalls["drain"] or plan.reactive):
            return once
        return self.run(plan, policy, ITERATIONS)

    def _transformed(self, plan: MemoryPlan) -> Prepared:
        """What is simulated: the step as the plan changes it; the latest such step is kept."""
        if not changes_step(plan, self.prepared.step):
            return self.prepared
        key = (plan.splits, plan.order, plan.overlays)
        if self._latest[0] != key:
            step = self.prepared.step if plan.splits == 1 else self.split(plan.splits)
            step = transformed(step, plan)
            self._latest = (key, Prepared(step, self.prepared.machine))
        return self._latest[1]

    def estimate(self, plan: MemoryPlan) -> Estimate:
        """A trial: what ``run`` would give, or why it does not fit."""
        try:
            return self.run(plan).estimate
        except Infeasible as error:
            return Estimate(False, reason=str(error))


class Run(Elsewhere):
    """One simulated step: the walk over ops, and the moves between them."""

    first: Simulation | None = None

    def walk(self, iterations: int = 1) -> Process:
        """The step, so many times; yields the times that it goes on at."""
        seconds, workspace, by_op = self._prepare()
        dying = self.s.deaths(self.plan)
        if iterations > 1:
            self.owe_updates(seconds)
        for iteration in range(iterations):
            if iteration:
                self.first = self.first or self.report()
                self.restart()
            yield from self._step(seconds, workspace, by_op, dying)
        if iterations == 1:
            yield from self._drain(len(seconds))

    def _step(
        self,
        seconds: Sequence[float],
        workspace: Sequence[int],
        by_op: Mapping[int, Sequence[Move]],
        dying: Mapping[int, Sequence[int]],
    ) -> Process:
        count = len(seconds)
        for op in range(count):
            if op in by_op:
                yield from self.carry_out(by_op[op], op)
            if 2 * op in dying:
                self.free(dying[2 * op])
            if op in self.host_ops:
                self.on_host(op, seconds[op], workspace[op])
                if self.s.machine.synchronous and self.host_free > self.now:
                    yield from self.stand_still(self.host_free, "host")
            else:
                yield from self._op(op, seconds[op], workspace[op])
            if op in self.until:
                self.release(self.until.pop(op))
            if 2 * op + 1 in dying:
                self.free(dying[2 * op + 1])
        yield from self.carry_out(by_op.get(count, ()), count)
        self.free(dying.get(2 * count, ()))

    def _prepare(self) -> tuple[list[float], list[int], dict[int, list[Move]]]:
        """Op times and workspaces under the plan, moves by op; persistent tensors in their places."""
        seconds, workspace = list(self.s.seconds), list(self.s.workspace)
        by_op: dict[int, list[Move]] = defaultdict(list)
        placed: dict[int, str] = {}
        for move in self.plan.moves:
            if move.action in self.carry:
                by_op[move.at].append(move)
            elif isinstance(move, moves.Algorithm):
                seconds[move.at], workspace[move.at] = move.seconds, move.workspace
            elif isinstance(move, moves.Place):
                placed[move.tensor] = move.tier
            elif isinstance(move, moves.OnHost):
                seconds[move.at] = move.seconds
                self.host_ops[move.at] = move
            elif isinstance(move, moves.InPlace):
                seconds[move.at] = move.seconds
                self.uses_in_place(move)
        self._settle_in(placed)
        return seconds, workspace, by_op

    def _settle_in(self, placed: dict[int, str]) -> None:
        """Persistent tensors lie where the step begins with them."""
        for tensor in self.s.persistent:
            if tensor in placed:
                self.store(tensor, placed[tensor], 1.0)
                self.state[tensor] = AWAY
                continue
            if self.pool:
                address = self.pool.take(tensor, self.size[tensor])
                if address is None:
                    raise self.no_hole(self.size[tensor])
                self.address[tensor] = address
            self.take(self.size[tensor], self.s.kinds[tensor])
            self.state[tensor] = DEVICE
        if self.used > self.capacity:
            raise lacking(self.used - self.capacity, "start of the step", "persistent tensors", self.capacity)

    def _op(self, op: int, seconds: float, workspace: int) -> Process:
        self.at = op
        touched, state = self.touched[op], self.state
        if op in self.in_place:
            yield from self.settle_in_place(self.in_place[op])
        absent = [tensor for tensor in touched if state[tensor] != DEVICE]
        new = [tensor for tensor in absent if state[tensor] == UNBORN]
        address = NOWHERE
        if absent or workspace:
            coming = (yield from self.gather(touched)) if len(new) < len(absent) else ()
            address = yield from self.claim(new, workspace, touched)
            self.admit()
            if coming:
                yield from self.arrive(coming)
            for tensor in absent:
                state[tensor] = DEVICE
        elif self.queue:
            self.admit()
        if self.kept:
            for tensor in self.s.lineage.writes[op]:
                self.void(tensor)
        yield from self.compute(seconds)
        if workspace:
            self.give(workspace, WORKSPACE, address)
        if self.policy:
            self._remember(touched, new, seconds)

    def _drain(self, count: int) -> Process:
        self.at = count
        for tensor in list(self.queue):
            if self.state[tensor] == QUEUED:
                yield from self.fetch_now(tensor, ())
        while (end := max(self.last_copy(), self.host_free)) > self.now:
            yield from self.stand_still(end, "drain")

    def last_copy(self) -> float:
        """When the last copy queued so far will have ended."""
        return self.channels.end

    def _remember(self, touched: Sequence[int], new: Sequence[int], seconds: float) -> None:
        for tensor in touched:
            self.last_used[tensor] = self.now
        for tensor in new:
            self.produced[tensor], self.cost[tensor] = self.now, seconds

    def report(self) -> Simulation:
        """What the step came to."""
        ideal = 0.0
        for value in self.s.seconds:
            ideal += value
        return Simulation(
            peak_bytes=self.peak,
            host_peak=round(self.tiers.peaks["host"]),
            step_time=self.now,
            ideal_time=ideal,
            recompute_time=self.recompute_time,
            recompute_flops=self.recompute_flops,
            codec_time=self.codec_time,
            stalls=self.stalls,
            moved=self.channels.moved,
            transfers={name: until(self.now, spans) for name, spans in self.channels.spans.items()},
            idle=self.idle,
            log=self.log,
            late=self.late,
            host_busy=until(self.now, self.host_spans),
            peaks={tier: round(most) for tier, most in self.tiers.peaks.items()},
            pool_bytes=self.pool.end if self.pool else None,
            wasted_bytes=self.pool.wasted if self.pool else None,
            first=self.first,
        )
