"""A pass of a micro-batch over layers on one worker: runs of computing, and the messages overlapped with and
after each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from experiments.parallel.interface import (
    BACKWARD,
    OVERLAPPED,
    PER_SAMPLE,
    PER_STEP,
    Collective,
    ParallelPlan,
    PlanningEstimate,
    Slot,
)
from experiments.parallel.simulator.network import Message, Network, join
from experiments.parallel.simulator.stages import StageFigures


@dataclass(frozen=True)
class ComputeRun:
    """Computing with the messages that go with it.

    ``seconds`` of computing: ``overlapped`` starts with it, ``after`` follows it; the next run waits for
    all.
    """

    seconds: float
    overlapped: tuple[Message, ...]
    after: tuple[Message, ...]


def merge(runs: Sequence[ComputeRun]) -> tuple[ComputeRun, ...]:
    """Merge ``runs`` whose messages follow each other on the same channels of one node.

    Only the worker's own messages use those: the merged run computes as long, and waits as long in all
    for what the computations do not hide.
    """
    messages = [message for run in runs for message in (*run.overlapped, *run.after)]
    if len(runs) < 2 or any(m.shares or m.channels != messages[0].channels for m in messages):
        return tuple(runs)
    waits = [max(0.0, sum(m.seconds for m in run.overlapped) - run.seconds) for run in runs]
    after = sum(m.seconds for run in runs for m in run.after)
    parts = tuple(part for message in messages for part in message.parts or (message,))
    whole = replace(messages[0], seconds=sum(waits) + after, parts=parts)
    return (ComputeRun(sum(run.seconds for run in runs), (), (whole,)),)


class Passes:
    """What each worker's passes consist of; equal ones are worked out once.

    ``slowdown``: how much longer each computes.
    """

    def __init__(
        self, plan: ParallelPlan, estimate: PlanningEstimate, figures: StageFigures, network: Network
    ) -> None:
        self._plan, self._figures, self._network = plan, figures, network
        self._overlap = estimate.exchange == OVERLAPPED
        straggling = dict(estimate.cluster.stragglers)
        self.slowdown = [
            max(estimate.slowdown(device) * straggling.get(device, 1.0) for device in worker.devices)
            for worker in plan.workers
        ]
        self._runs: dict[Hashable, tuple[ComputeRun, ...]] = {}
        self._messages: dict[Hashable, Message] = {}

    def runs(self, worker: int, slot: Slot, layers: range) -> tuple[ComputeRun, ...]:
        """The runs of ``slot`` over ``layers``. A layer with overlapped collectives is a run of its own."""
        size = self._plan.slices[slot.micro_batch] if self._plan.slices else self._samples(slot)
        key = worker, slot.kind, layers, size
        if key not in self._runs:
            parts = self._parts(slot.kind, layers)
            self._runs[key] = merge([run for part in parts for run in self._loop_runs(worker, slot, part)])
        return self._runs[key]

    def once_a_step(self, worker: int, slot: Slot, layers: range) -> list[Message]:
        """What shardings exchange when the last gradients of ``layers``, a bucket, are there.

        Equal kinds are one message.
        """
        bytes_of: dict[Collective, float] = defaultdict(float)
        for found in self._figures.collectives(BACKWARD, layers):
            if found.per == PER_STEP:
                bytes_of[replace(found, bytes=0.0)] += found.bytes
        return [self._message(worker, slot, replace(one, bytes=size)) for one, size in bytes_of.items()]

    def stages_that_exchange(self) -> frozenset[int]:
        """Stages in which a layer has a collective once a step."""
        return frozenset(
            number
            for number, stage in enumerate(self._plan.stages)
            for collective in self._figures.collectives(BACKWARD, range(stage.begin, stage.end))
            if collective.per == PER_STEP
        )

    def _overlaps(self, collective: Collective) -> bool:
        return self._overlap and collective.overlap and collective.per != PER_STEP

    def _samples(self, slot: Slot) -> float:
        count = self._figures.joint.count(slot) if self._plan.joined else 1
        return self._figures.samples(slot.micro_batch) * count

    def _parts(self, kind: str, layers: range) -> Iterable[range]:
        begin = layers.start
        for layer in layers if self._plan.shardings else ():
            own = range(layer, layer + 1)
            if any(self._overlaps(c) for c in self._figures.collectives(kind, own)):
                if begin < layer:
                    yield range(begin, layer)
                yield own
                begin = layer + 1
        if begin < layers.stop:
            yield range(begin, layers.stop)

    def _loop_runs(self, worker: int, slot: Slot, layers: range) -> list[ComputeRun]:
        """One run, or the parts of a loop: a collective in ``parts`` overlaps with each but its last."""
        whole = self._run(worker, slot, layers)
        overlapped = [c for c in self._figures.collectives(slot.kind, layers) if self._overlaps(c)]
        count = max((c.parts for c in overlapped), default=1)
        if count == 1:
            return [whole]
        found = []
        for part in range(count):
            own = [m for c, m in zip(overlapped, whole.overlapped, strict=True) if part < max(1, c.parts - 1)]
            after = whole.after if part == count - 1 else ()
            found.append(ComputeRun(whole.seconds / count, tuple(own), after))
        return found

    def _run(self, worker: int, slot: Slot, layers: range) -> ComputeRun:
        found = [c for c in self._figures.collectives(slot.kind, layers) if c.per != PER_STEP]
        return ComputeRun(
            self._figures.seconds(slot, layers) * self.slowdown[worker],
            tuple(self._message(worker, slot, c) for c in found if self._overlaps(c)),
            tuple(join([self._message(worker, slot, c) for c in found if not self._overlaps(c)])),
        )

    def _message(self, worker: int, slot: Slot, collective: Collective) -> Message:
        times = self._samples(slot) if collective.per == PER_SAMPLE else 1.0
        key = worker, collective, times
        if key not in self._messages:
            groups = collective.groups(self._plan.workers[worker].devices)
            message = self._network.groups(collective.kind, groups, collective.bytes * times)
            self._messages[key] = replace(message, seconds=message.seconds * collective.slowdown)
        return self._messages[key]
