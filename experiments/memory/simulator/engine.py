"""The simulated step: one compute lane, four channels, one pool of device bytes with a capacity.

Order of things before op ``i`` (``docs/decisions`` has the reasons): the moves at ``i`` are issued; tensors that the
op lacks and its new outputs take their space, waiting for offloads to leave where they must; then prefetches that
were issued earlier take what space is left, first come first served; then compute waits for the op's inputs to
arrive and runs. Tensors are freed after their last need.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from experiments.core.errors import Infeasible
from experiments.memory.interface import plan as moves
from experiments.memory.interface.machine import Estimate, Machine
from experiments.memory.interface.plan import MemoryPlan, Move
from experiments.memory.interface.policy import ReactiveMemoryPolicy
from experiments.memory.simulator.paging import PagedRun
from experiments.memory.simulator.prepared import Prepared
from experiments.memory.simulator.report import TIMELINE, Simulation
from experiments.memory.simulator.space import (
    AWAY,
    COMING,
    DEVICE,
    GONE,
    QUEUED,
    STATES,
    UNBORN,
    Space,
    lacking,
)
from experiments.workloads.step import Step

WORKSPACE = TIMELINE.index("workspace")


class Simulator:
    """Simulates plans for one step on one machine; what does not depend on the plan is prepared once."""

    def __init__(self, step: Step, machine: Machine) -> None:
        self.prepared = Prepared(step, machine)

    def run(self, plan: MemoryPlan, policy: ReactiveMemoryPolicy | None = None) -> Simulation:
        """One step under ``plan``; ``Infeasible`` names the op that does not fit and the bytes that are missing."""
        if plan.paging is not None:
            return PagedRun(self.prepared, plan).run()
        return _Run(self.prepared, plan, policy).run()

    def estimate(self, plan: MemoryPlan) -> Estimate:
        """A trial: what ``run`` would give, or why it does not fit."""
        try:
            return self.run(plan).estimate
        except Infeasible as error:
            return Estimate(False, reason=str(error))


class _Run(Space):
    """One simulated step: the walk over ops, and the moves between them."""

    def __init__(self, prepared: Prepared, plan: MemoryPlan, policy: ReactiveMemoryPolicy | None) -> None:
        super().__init__(prepared, plan, policy)
        self.until: dict[int, list[tuple[float, int]]] = defaultdict(list)
        self.recompute_time = self.recompute_flops = self.codec_time = 0.0
        self.carry: dict[str, Callable[[Any], None]] = {
            "offload": self._offload,
            "prefetch": self._prefetch,
            "wait": self._wait,
            "drop": self._drop,
            "recompute": self._recompute,
            "compress": self._compress,
            "decompress": self._decompress,
        }

    def run(self) -> Simulation:
        seconds, workspace, by_op = self._prepare()
        dying = self._deaths()
        count = len(seconds)
        for op in range(count):
            if op in by_op:
                self._moves(by_op[op], op)
            self.free(dying.get(2 * op, ()))
            self._op(op, seconds[op], workspace[op])
            if op in self.until:
                self.release(self.until.pop(op))
            self.free(dying.get(2 * op + 1, ()))
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
                self.store(tensor, placed[tensor], 1.0)
                self.state[tensor] = AWAY
            else:
                self.take(self.size[tensor], self.s.kinds[tensor])
                self.state[tensor] = DEVICE
        if self.used > self.capacity:
            raise lacking(self.used - self.capacity, "start of the step", "persistent tensors", self.capacity)
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
        ready = self.gather(touched)
        self.obtain(sum([self.size[tensor] for tensor in new]) + workspace, touched)
        for tensor in new:
            self.take(self.size[tensor], self.s.kinds[tensor])
            state[tensor] = DEVICE
        if workspace:
            self.take(workspace, WORKSPACE)
        self.admit()
        if ready > self.now:
            self.stand_still(ready, "transfer")
        for tensor in touched:
            state[tensor] = DEVICE
        self.compute(seconds)
        if workspace:
            self.take(-workspace, WORKSPACE)
        if self.policy:
            self._remember(touched, new, seconds)

    def _drain(self, count: int) -> None:
        self.at = count
        for tensor in list(self.queue):
            if self.state[tensor] == QUEUED:
                self.obtain(self.size[tensor], ())
                self.fetch(tensor)
        end = self.channels.end
        if end > self.now:
            self.stand_still(end, "drain")

    def _remember(self, touched: Sequence[int], new: Sequence[int], seconds: float) -> None:
        for tensor in touched:
            self.last_used[tensor] = self.now
        for tensor in new:
            self.produced[tensor], self.cost[tensor] = self.now, seconds

    def _offload(self, move: moves.Offload) -> None:
        tensor = move.tensor
        if self.state[tensor] == COMING:
            self.stand_still(max(self.now, self.arrival[tensor]), "transfer")
        elif self.state[tensor] != DEVICE:
            raise Infeasible(f"cannot offload tensor {tensor}: {STATES[self.state[tensor]]}", self.place())
        self.store(tensor, move.tier, move.ratio)
        end = self.channels.out(self.away[tensor][1], move.tier, self.now)
        self.copied[tensor] = end
        if self.s.machine.synchronous:
            self.stand_still(end, "synchronization")
        if move.until >= move.at:
            self.departing.add(tensor)
            self.until[move.until].append((end, tensor))
        else:
            self.release([(end, tensor)])

    def _prefetch(self, move: moves.Prefetch) -> None:
        if self.state[move.tensor] != AWAY:
            state = STATES[self.state[move.tensor]]
            raise Infeasible(f"cannot prefetch tensor {move.tensor}: {state}", self.place())
        self.state[move.tensor] = QUEUED
        if self.s.machine.synchronous:
            self.obtain(self.size[move.tensor], ())
            self.fetch(move.tensor)
            self.stand_still(self.arrival[move.tensor], "synchronization")
        else:
            self.queue.append(move.tensor)

    def _wait(self, move: moves.Wait) -> None:
        """Only for a copy under way: a prefetch that still lacks space is not waited for, it could wait for ever."""
        state = self.state[move.tensor]
        end = self.arrival[move.tensor] if state == COMING else self.copied[move.tensor]
        if state != QUEUED and end > self.now:
            self.stand_still(end, "synchronization")
        else:
            self.settle(self.now)

    def _drop(self, move: moves.Drop) -> None:
        if self.state[move.tensor] != DEVICE:
            raise Infeasible(
                f"cannot drop tensor {move.tensor}: {STATES[self.state[move.tensor]]}", self.place()
            )
        self.take(-self.size[move.tensor], self.s.kinds[move.tensor])
        self.state[move.tensor] = GONE

    def _recompute(self, move: moves.Recompute) -> None:
        here = {t for t, state in enumerate(self.state) if state in (DEVICE, COMING, QUEUED)}
        last = {t: op for op in move.ops for t in self.s.touched[op]}
        for op in move.ops:
            self._rerun(op, here, set(move.keep), [t for t, end in last.items() if end == op])
        self.recompute_flops += sum([self.s.flops[op] for op in move.ops])

    def _rerun(self, op: int, here: set[int], keep: set[int], ending: Sequence[int]) -> None:
        """Run ``op`` again: new outputs, second copies of those still ``here``, and frees within the list."""
        touched, state = self.s.touched[op], self.state
        ready = self.gather([t for t in touched if t in here])
        written = [] if self.s.lineage.views[op] else self.s.lineage.writes[op]
        new = [t for t in dict.fromkeys(written) if t not in here and state[t] != DEVICE]
        scratch = sum([self.size[t] for t in dict.fromkeys(written) if t in here]) + self.s.workspace[op]
        self.obtain(sum([self.size[t] for t in new]) + scratch, touched)
        for tensor in new:
            self.take(self.size[tensor], self.s.kinds[tensor])
            state[tensor] = DEVICE
        self.take(scratch, WORKSPACE)
        self.admit()
        if ready > self.now:
            self.stand_still(ready, "transfer")
        for tensor in touched:
            if state[tensor] == COMING:
                state[tensor] = DEVICE
        self.compute(self.s.seconds[op])
        self.recompute_time += self.s.seconds[op]
        self.take(-scratch, WORKSPACE)
        self.free([t for t in ending if t not in here and t not in keep and state[t] == DEVICE])

    def _compress(self, move: moves.Compress) -> None:
        self._recode(move.tensor, max(1, round(self.s.sizes[move.tensor] / move.ratio)), move.seconds)

    def _decompress(self, move: moves.Decompress) -> None:
        self._recode(move.tensor, self.s.sizes[move.tensor], move.seconds)

    def _recode(self, tensor: int, size: int, seconds: float) -> None:
        """Both forms are on the device while the codec runs."""
        ready = self.gather([tensor])
        self.obtain(size, [tensor])
        self.take(size, self.s.kinds[tensor])
        if ready > self.now:
            self.stand_still(ready, "transfer")
        self.state[tensor] = DEVICE
        self.compute(seconds)
        self.codec_time += seconds
        self.take(-self.size[tensor], self.s.kinds[tensor])
        self.size[tensor] = size

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
