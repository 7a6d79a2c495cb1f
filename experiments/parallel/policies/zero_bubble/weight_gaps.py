"""Orders of forwards, backwards and weight gradients for passes that are unequally long, by playing a step
through.

Source: Qi et al., "Zero Bubble (Almost) Pipeline Parallelism", ICLR'24, section 3 and appendix: as many
forwards as memory allows before the first backward, weight gradients into the gaps before what has not come
in yet, the rest behind the last pass; all settings of a few rules are tried and the best order is kept. Here
every device takes the next pass at the moment at which it is free, all devices together, so that gaps come
from the passes of the others. Left open there: what "fits" means where it is not known yet when the next pass
comes in; here it cannot come in before the shortest pass of a neighbor is over.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from experiments.hardware import Hardware
from experiments.parallel.interface import (
    BACKWARD,
    FORWARD,
    WEIGHT,
    ParallelPlan,
    PlanningEstimate,
    Slot,
    Stage,
)
from experiments.workloads.kernel_times import PassSeconds

#: A weight gradient that is longer than the gap: waits; runs; runs where its device has idled less than
#: another.
WAITS, RUNS, LEVELS = "waits", "runs", "levels"


@dataclass(frozen=True)
class OrderProblem:
    """Seconds of a pipeline's passes and transfers, and the micro-batches a device may hold.

    Passes are of a micro-batch, by device.
    """

    passes: tuple[PassSeconds, ...]
    transfer: float
    micro_batches: int
    limit: int


@dataclass(frozen=True)
class OrderRules:
    """How the order of a device's slots is made.

    With ``falling`` a device holds no more than bring its first backward without a gap: fewer, the later it
    is.
    """

    too_long: str
    falling: bool
    forward_first: bool


def orders(problem: OrderProblem) -> Iterator[tuple[tuple[Slot, ...], ...]]:
    """Return the slots of every device, for every setting of the rules; equal ones once."""
    seen = set()
    for rules in itertools.starmap(
        OrderRules, itertools.product((WAITS, RUNS, LEVELS), (True, False), (False, True))
    ):
        found = tuple(tuple(device.slots) for device in _Play(problem, rules).devices)
        if found not in seen:
            seen.add(found)
            yield found


@dataclass
class _Device:
    stage: int
    seconds: dict[str, float]
    limit: int
    now: float = 0.0
    idle: float = 0.0
    slots: list[Slot] = field(default_factory=list)
    done: dict[str, int] = field(default_factory=lambda: dict.fromkeys((FORWARD, BACKWARD, WEIGHT), 0))
    #: When each pass's input is there, in the order of micro-batches.
    arrived: dict[str, list[float]] = field(default_factory=lambda: {FORWARD: [], BACKWARD: []})

    @property
    def live(self) -> int:
        return self.done[FORWARD] - self.done[WEIGHT]

    @property
    def due(self) -> bool:
        """Whether a weight gradient could run."""
        return self.done[WEIGHT] < self.done[BACKWARD]

    def comes(self, kind: str) -> float:
        """When the input of the next pass of ``kind`` is there, as far as is known."""
        known = self.arrived[kind]
        return known[self.done[kind]] if self.done[kind] < len(known) else math.inf


class _Play:
    """All devices from the first forward to the last weight gradient."""

    def __init__(self, problem: OrderProblem, rules: OrderRules) -> None:
        self.problem, self.rules = problem, rules
        count = len(problem.passes)
        self.devices = [self._device(stage, count) for stage in range(count)]
        self.devices[0].arrived[FORWARD] = [0.0] * problem.micro_batches
        self._queue = [(0.0, stage) for stage in range(count)]
        while self._queue:
            now, stage = heapq.heappop(self._queue)
            self._decide(self.devices[stage], now)

    def _device(self, stage: int, count: int) -> _Device:
        seconds = dict(zip((FORWARD, BACKWARD, WEIGHT), self.problem.passes[stage], strict=True))
        most = 2 * (count - stage) - 1 if self.rules.falling else self.problem.limit
        return _Device(stage, seconds, min(most, self.problem.limit) if stage else self.problem.limit)

    def _decide(self, device: _Device, now: float) -> None:
        """What a free device does next; nothing where it must wait for somebody."""
        if now < device.now or device.done[WEIGHT] == self.problem.micro_batches:
            return
        ready = [
            kind for kind in self._preference() if device.comes(kind) <= now and self._has_room(device, kind)
        ]
        if ready:
            self._run(device, ready[0], now)
        elif device.due and self._fits(device, now):
            self._run(device, WEIGHT, now)
        else:
            self._wait(device, now)

    def _preference(self) -> tuple[str, str]:
        return (FORWARD, BACKWARD) if self.rules.forward_first else (BACKWARD, FORWARD)

    def _has_room(self, device: _Device, kind: str) -> bool:
        return kind == BACKWARD or device.live < device.limit

    def _fits(self, device: _Device, now: float) -> bool:
        """Whether a weight gradient frees memory for a forward that is ready, or ends before the next pass
        comes in.
        """
        if device.comes(FORWARD) <= now or device.done[BACKWARD] == self.problem.micro_batches:
            return True
        if device.seconds[WEIGHT] <= self._next(device, now) - now or self.rules.too_long == RUNS:
            return True
        return self.rules.too_long == LEVELS and device.idle < max(other.idle for other in self.devices)

    def _next(self, device: _Device, now: float) -> float:
        """No pass that could run comes in before."""
        kinds = [kind for kind in (FORWARD, BACKWARD) if self._has_room(device, kind)]
        known = min((device.comes(kind) for kind in kinds), default=math.inf)
        if known < math.inf:
            return known
        others = self.devices[max(0, device.stage - 1) : device.stage + 2]
        least = min(min(other.seconds[FORWARD], other.seconds[BACKWARD]) for other in others)
        return now + least + self.problem.transfer

    def _wait(self, device: _Device, now: float) -> None:
        """Until the next pass comes in; who makes it wakes the device where it is not known when."""
        known = min(device.comes(kind) for kind in (FORWARD, BACKWARD) if self._has_room(device, kind))
        if now < known < math.inf:
            heapq.heappush(self._queue, (known, device.stage))

    def _run(self, device: _Device, kind: str, now: float) -> None:
        micro_batch = device.done[kind]
        device.slots.append(Slot(kind, micro_batch, device.stage))
        device.done[kind] += 1
        device.idle += now - device.now if device.slots[1:] else 0.0
        device.now = now + device.seconds[kind]
        heapq.heappush(self._queue, (device.now, device.stage))
        self._hand_on(device, kind)

    def _hand_on(self, device: _Device, kind: str) -> None:
        last = len(self.devices) - 1
        if kind == FORWARD and device.stage == last:
            device.arrived[BACKWARD].append(device.now)
        elif kind == FORWARD:
            self._tell(self.devices[device.stage + 1], FORWARD, device.now)
        elif kind == BACKWARD and device.stage:
            self._tell(self.devices[device.stage - 1], BACKWARD, device.now)

    def _tell(self, device: _Device, kind: str, made: float) -> None:
        device.arrived[kind].append(made + self.problem.transfer)
        heapq.heappush(self._queue, (max(device.now, device.arrived[kind][-1]), device.stage))


def problem_of(
    plan: ParallelPlan, cluster: Hardware, estimate: PlanningEstimate, micro_batches: int, limit: int
) -> OrderProblem:
    """Return the problem of one of the plan's pipelines.

    The longest transfer between neighbors stands for all of them.
    """
    again = set(plan.recompute)
    passes = tuple(_stage_passes(plan, stage, estimate, again) for stage in plan.stages)
    share = plan.micro_batch_samples / estimate.model.batch
    sizes = [float(estimate.model.output_bytes[stage.end - 1]) * share for stage in plan.stages[:-1]]
    link = cluster.node.link if cluster.node_count == 1 else cluster.network
    return OrderProblem(passes, max(map(link.time, sizes), default=0.0), micro_batches, limit)


def _stage_passes(
    plan: ParallelPlan, stage: Stage, estimate: PlanningEstimate, again: Collection[int]
) -> PassSeconds:
    """Of all layers of a stage; a backward pass first computes again what was dropped."""
    found = [
        (estimate.pass_seconds(layer, plan.micro_batch_samples), layer in again)
        for layer in range(stage.begin, stage.end)
    ]
    return PassSeconds(
        sum(one.forward for one, _ in found),
        sum(one.backward + (one.forward if twice else 0.0) for one, twice in found),
        sum(one.weight for one, _ in found),
    )
