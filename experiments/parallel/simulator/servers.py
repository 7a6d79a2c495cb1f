"""Workers and parameter servers, event by event: fetches, gradients, pushes, updates, and who waits for whom.

Parameters are cut into equal ranges, range r on server r mod k. A worker fetches every range, computes an
iteration and pushes every range; worker w begins with server w mod k, so that workers do not queue at the
same one. A server's update is bound by its memory. Iteration c of a worker may begin when c - (iterations
done by the slowest) <= s, the plan's staleness; an iteration is done when its push is applied on every
server. With s = 0 a range is updated once all workers have pushed it (BSP), else with each push as it arrives
(SSP; ASP where s is ``None``).

Sources: Li et al., OSDI'14, sections 3.1-3.4; Ho et al., NIPS'13, section 2 (SSP).
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial

from experiments.core.events import EventQueue
from experiments.core.progress import accompany
from experiments.hardware.roofline import memory_rate
from experiments.parallel.interface import FORWARD, ParallelPlan, PlanningEstimate, Slot
from experiments.parallel.interface.parameter_servers import iterations, ranges
from experiments.parallel.simulator.channels import ChannelOccupancy, Delivery, Happening
from experiments.parallel.simulator.network import Message, Network
from experiments.parallel.simulator.stages import StageFigures
from experiments.parallel.simulator.tasks import LOOKS


@dataclass
class _Latch:
    """A countdown latch: ``then`` is called when every operation that it counts has completed."""

    pending: int = 0
    waiting: Happening | None = None

    def then(self, now: float, happening: Happening) -> None:
        if self.pending:
            self.waiting = happening
        else:
            happening(now)

    def one_less(self, now: float) -> None:
        self.pending -= 1
        if not self.pending and self.waiting is not None:
            happening, self.waiting = self.waiting, None
            happening(now)


@dataclass
class _Worker:
    """``left`` are iterations still to run; ``read`` the versions that it has, ``used`` those of its oldest
    gradient.
    """

    number: int
    device: int
    slow: tuple[float, ...]
    left: list[tuple[int, list[Slot]]]
    begun: int = 0
    fetch: _Latch = field(default_factory=_Latch)
    push: _Latch = field(default_factory=_Latch)
    held_back: Happening | None = None
    read: dict[int, int] = field(default_factory=dict)
    used: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Records:
    """What a simulation with parameter servers records.

    By worker: slots with their times, ends of iterations, samples, seconds held back and computing.

    ``leads``: at each beginning of an iteration, how many the worker is in front of the slowest.
    ``staleness``: for each push of a range, how many updates it got between the worker's read and this push.
    By device: bytes sent and seconds sending.
    """

    events: list[list[tuple[float, float, str]]]
    done: list[list[float]]
    samples: list[int]
    held_back: list[float]
    busy: list[float]
    leads: list[int] = field(default_factory=list)
    staleness: list[int] = field(default_factory=list)
    sent: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    sending: dict[int, float] = field(default_factory=lambda: defaultdict(float))

    @classmethod
    def empty(cls, workers: int) -> Records:
        lists: list[list[tuple[float, float, str]]] = [[] for _ in range(workers)]
        return cls(lists, [[] for _ in range(workers)], [0] * workers, [0.0] * workers, [0.0] * workers)

    @property
    def window(self) -> float:
        """Seconds until the last iteration that was seen to end."""
        return max((times[-1] for times in self.done if times), default=0.0)


class ServerReplay:
    """``run`` ends when the first worker has nothing left to do (with BSP: all of them)."""

    def __init__(self, plan: ParallelPlan, estimate: PlanningEstimate) -> None:
        self.plan, self.estimate, self.sync = plan, estimate, plan.synchronization
        self.figures = StageFigures(plan, estimate)
        self.parameters = float(self.figures.parameters[0].sum())
        self.ranges = ranges(plan, self.parameters * estimate.states.gradient) if self.parameters else 0
        self.network = Network(estimate.cluster)
        self.straggling = dict(estimate.cluster.stragglers)
        self.queue: EventQueue[Happening] = EventQueue()
        self.channels = ChannelOccupancy(self.queue)
        self.messages: dict[tuple[int, int, float], Message] = {}
        self.workers = [
            _Worker(number, worker.devices[0], worker.slow or (1.0,), iterations(plan, number))
            for number, worker in enumerate(plan.workers)
        ]
        self.members = [sum(i in dict(w.left) for w in self.workers) for i in range(plan.steps)]
        self.versions = [0] * self.ranges
        self.pushed: dict[tuple[int, int], list[tuple[_Worker, int]]] = defaultdict(list)
        self.free_from: dict[int, float] = defaultdict(float)
        self.seen = Records.empty(len(self.workers))
        self.over = math.inf

    def run(self) -> Records:
        for worker in self.workers:
            self._begin(worker, 0.0)
        looks = accompany(itertools.count(), self.estimate.progress, LOOKS)
        while (self.queue.peek() or 0.0) <= self.over and self.queue:
            next(looks)
            now, happening = self.queue.pop()
            happening(now)
        return self.seen

    # --- a worker's iteration -------------------------------------------------------------------------------

    def _slowest(self) -> int:
        return min((worker.left[0][0] for worker in self.workers if worker.left), default=self.plan.steps)

    def _begin(self, worker: _Worker, now: float) -> None:
        """Fetch and compute, or be held back until the slowest has caught up."""
        if not worker.left:
            self.over = min(self.over, now) if self.sync.staleness != 0 else self.over
            return
        bound, lead = self.sync.staleness, worker.left[0][0] - self._slowest()
        if bound is not None and lead > bound:
            worker.held_back = partial(self._resume, worker, now)
            return
        self.seen.leads.append(lead)
        if worker.begun % self.sync.fetch_every == 0:
            worker.fetch.then(now, partial(self._fetch, worker))
        else:
            self._compute(worker, now)

    def _resume(self, worker: _Worker, since: float, now: float) -> None:
        self.seen.held_back[worker.number] += now - since
        self._begin(worker, now)

    def _fetch(self, worker: _Worker, now: float) -> None:
        worker.fetch.pending = self.ranges
        for numbers in self._by_server(worker):
            self._pull(worker, numbers, now)
        if self.sync.fetch_ahead and worker.begun:
            self._compute(worker, now)
        else:
            worker.fetch.then(now, partial(self._compute, worker))

    def _compute(self, worker: _Worker, now: float) -> None:
        worker.used = worker.used or dict(worker.read)
        _, slots = worker.left[0]
        start = now
        for slot in slots:
            end = start + self._seconds(worker, slot)
            self.seen.events[worker.number].append((start, end, str(slot)))
            start = end
        self.queue.push(start, partial(self._finish_compute, worker, start - now))

    def _seconds(self, worker: _Worker, slot: Slot) -> float:
        layers = range(self.plan.stages[0].begin, self.plan.stages[0].end)
        seconds = self.figures.seconds(slot, layers) + self.plan.slot_overhead
        factor = worker.slow[worker.begun % len(worker.slow)]
        factor *= self.straggling.get(worker.device, 1.0)
        return seconds * factor * self.estimate.slowdown(worker.device)

    def _finish_compute(self, worker: _Worker, seconds: float, now: float) -> None:
        worker.begun += 1
        self.seen.busy[worker.number] += seconds
        if worker.begun % self.sync.push_every and len(worker.left) > 1:
            self._finish_pass(worker, now)
        else:
            worker.push.then(now, partial(self._push, worker))

    def _push(self, worker: _Worker, now: float) -> None:
        worker.push.pending = self.ranges
        used, worker.used = worker.used, {}
        for numbers in self._by_server(worker):
            self._send_push(worker, worker.left[0][0], numbers, used, now)
        if self.sync.fetch_ahead:
            self._finish_pass(worker, now)
        else:
            worker.push.then(now, partial(self._finish_pass, worker))

    def _finish_pass(self, worker: _Worker, now: float) -> None:
        _, slots = worker.left.pop(0)
        forwards = sum(slot.kind == FORWARD for slot in slots)
        self.seen.samples[worker.number] += forwards * self.plan.micro_batch_samples
        self.seen.done[worker.number].append(now)
        for other in self.workers:
            again, other.held_back = other.held_back, None
            if again is not None:
                again(now)
        self._begin(worker, now)

    # --- messages and servers -------------------------------------------------------------------------------

    def _by_server(self, worker: _Worker) -> list[range]:
        """Ranges of each server, that of the worker's number first. They follow each other, so that workers
        take turns.
        """
        servers = len(self.sync.servers) if self.ranges else 0
        return [range((worker.number + i) % servers, self.ranges, servers) for i in range(servers)]

    def _server(self, number: int) -> int:
        return self.sync.servers[number % len(self.sync.servers)]

    def _message(self, source: int, target: int, bytes_each: float) -> Message | None:
        if source == target:
            return None
        key = source, target, bytes_each
        if key not in self.messages:
            size = self.parameters / self.ranges * bytes_each
            self.messages[key] = self.network.point_to_point(source, target, size)
        return self.messages[key]

    def _count(self, message: Message | None) -> None:
        for device in message.senders if message else ():
            assert message is not None
            self.seen.sent[device] += message.sent
            self.seen.sending[device] += message.seconds

    def _pull(self, worker: _Worker, numbers: range, now: float) -> None:
        """Ranges of one server: the worker gets the version that is there when the message leaves."""
        number, found = numbers[0], list[int]()
        message = self._message(self._server(number), worker.device, self.estimate.states.weight)

        def leaves(_: float) -> None:
            found.append(self.versions[number])
            self._count(message)

        def arrives(then: float) -> None:
            worker.read[number] = found[0]
            if numbers[1:]:
                self._pull(worker, numbers[1:], then)
            worker.fetch.one_less(then)

        self.channels.send(now, Delivery(message, leaves, arrives))

    def _send_push(
        self, worker: _Worker, iteration: int, numbers: range, used: dict[int, int], now: float
    ) -> None:
        number = numbers[0]
        message = self._message(worker.device, self._server(number), self.estimate.states.gradient)

        def arrives(then: float) -> None:
            if numbers[1:]:
                self._send_push(worker, iteration, numbers[1:], used, then)
            self._arrive(worker, iteration, number, used.get(number, 0), then)

        self.channels.send(now, Delivery(message, lambda _: self._count(message), arrives))

    def _arrive(self, worker: _Worker, iteration: int, number: int, used: int, now: float) -> None:
        """Wait for the others (BSP), then update in the order of arrival."""
        pushes = self.pushed[iteration, number]
        pushes.append((worker, used))
        if self.sync.staleness == 0 and len(pushes) < self.members[iteration]:
            return
        del self.pushed[iteration, number]
        server = self._server(number)
        self.free_from[server] = max(now, self.free_from[server]) + self._update_seconds(server)
        self.queue.push(self.free_from[server], partial(self._apply, number, pushes))

    def _update_seconds(self, server: int) -> float:
        """States are read and written once, the gradient read."""
        states = self.estimate.states
        each = 2 * (states.weight + states.optimizer) + states.gradient
        return self.parameters / self.ranges * each / memory_rate(self.estimate.devices[server])

    def _apply(self, number: int, pushes: list[tuple[_Worker, int]], now: float) -> None:
        self.seen.staleness.extend(self.versions[number] - used for _, used in pushes)
        self.versions[number] += 1
        for worker, _ in pushes:
            worker.push.one_less(now)
