"""Several devices that do the same step at the same time and share one host link.

Each device has its own compute lane, memory, and channels behind the host; the link's bandwidth or its tokens
are shared (``link``): another implementation of the channels, which each run is given. The devices are
advanced together, always the one that wants to go on earliest, so a transfer is queued only when nothing that
could be queued before it is left. When a transfer joins, those in flight may end later than was known: each
device is notified, and looks at the clock again before it goes on.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace

from experiments.core.errors import BadInput
from experiments.memory.interface.machine import MemoryMachine
from experiments.memory.interface.plan import MemoryPlan, OnHost
from experiments.memory.interface.release import Release
from experiments.memory.interface.space import Paging
from experiments.memory.interface.transform import transformed
from experiments.memory.simulator.channels import TierChannels
from experiments.memory.simulator.link import LinkTransfer, SharedLink
from experiments.memory.simulator.prepared import Prepared
from experiments.memory.simulator.recorder import UNWATCHED, RunRecorder
from experiments.memory.simulator.report import MemorySimulation, Spans
from experiments.memory.simulator.run import StepRun
from experiments.workloads.step import Step

#: Says that a copy of a tensor, out of the device or back, ends at another time, and whether it is the latest
#: one.
Reschedule = Callable[[int, bool, float, bool], None]


def run_shared(
    step: Step,
    plans: Sequence[MemoryPlan],
    machine: MemoryMachine,
    discipline: str = "fair",
    recorders: Sequence[RunRecorder] = (),
) -> list[MemorySimulation]:
    """Simulate one step on as many devices as ``plans``, begun together; ``discipline`` is fair or turns.

    ``machine`` is one device's, its host link the one that all share (its ``sharers`` are these devices).
    Each of ``recorders``, if there are any, watches a device. ``BadInput`` where a plan needs what is not
    carried out here: pages, ops on the host, copies by the processor that computes.
    """
    for plan in plans:
        _refuse(plan, machine)
    alone = replace(machine, sharers=1)
    link = SharedLink(alone, len(plans), discipline)
    channels = [SharedChannels(alone, link, device) for device in range(len(plans))]
    watching = recorders or [UNWATCHED] * len(plans)
    runs: list[StepRun] = []
    for plan, recorder, own in zip(plans, watching, channels, strict=True):
        run = StepRun(Prepared(transformed(step, plan), alone), plan, None, recorder, own)
        own.join(channels, run.copies.reschedule)
        runs.append(run)
    advance(runs)
    return [run.report() for run in runs]


def _refuse(plan: MemoryPlan, machine: MemoryMachine) -> None:
    reasons = (
        (isinstance(plan.space, Paging), "pages"),
        (isinstance(plan.space, Release), "the rules of a published release"),
        (any(isinstance(move, OnHost) for move in plan.moves), "ops on the host"),
        (machine.synchronous, "copies by the processor that computes"),
    )
    for asked, what in reasons:
        if asked:
            raise BadInput(f"asks for {what}", "plan", "copies between devices and tiers")


def advance(runs: Sequence[StepRun]) -> None:
    """Run all to their ends, in the order of their clocks (ties: the lower device)."""
    steps = [run.walk() for run in runs]
    clocks = [(0.0, device) for device in range(len(runs))]
    while clocks:
        _, device = heapq.heappop(clocks)
        time = next(steps[device], None)
        if time is not None:
            heapq.heappush(clocks, (time, device))


class SharedChannels(TierChannels):
    """A device's channels whose host link others use too.

    ``sent`` are its transfers, ``latest`` those of each tensor and way; ``reschedule`` tells its run when one
    ends at another time than was known.
    """

    def __init__(self, machine: MemoryMachine, link: SharedLink, device: int) -> None:
        super().__init__(machine)
        self.link, self.device = link, device
        self.sent: list[LinkTransfer] = []
        self.tensors: dict[LinkTransfer, int] = {}
        self.latest: dict[tuple[int, str], LinkTransfer] = {}

    def join(self, devices: Sequence[SharedChannels], reschedule: Reschedule) -> None:
        """The channels of all devices, and whom this device's transfers concern."""
        self.devices, self.reschedule = devices, reschedule

    def send_out(self, tensor: int, size: float, tier: str, now: float) -> float:
        return self._share(tensor, size, tier, "out", now, now, None)

    def send_back(self, tensor: int, size: float, tier: str, now: float, copied: float) -> float:
        after = self.latest.get((tensor, "out"))
        ready = now if after is None else max(now, copied)
        return self._share(tensor, size, tier, "back", now, ready, after)

    def _share(
        self,
        tensor: int,
        size: float,
        tier: str,
        way: str,
        now: float,
        ready: float,
        after: LinkTransfer | None,
    ) -> float:
        beyond = self.beyond(size, tier, way, ready)
        latency = self.link.rates[way].latency
        transfer = LinkTransfer(self.device, way, latency, size, now, beyond, after)
        self.moved[way] += size
        self.sent.append(transfer)
        self.tensors[transfer] = tensor
        self.latest[tensor, way] = transfer
        for changed in self.link.send(transfer, now):
            if changed is not transfer:
                self.devices[changed.device].postpone(changed)
        return transfer.end

    def postpone(self, transfer: LinkTransfer) -> None:
        """``transfer`` of this device ends at another time than was known."""
        tensor, way = self.tensors[transfer], transfer.way
        self.reschedule(tensor, way == "out", transfer.end, self.latest[tensor, way] is transfer)

    def spans_until(self, now: float) -> dict[str, Spans]:
        for transfer in self.sent:
            if transfer.began < now:
                self.spans[transfer.way].append((transfer.began, min(transfer.gone, now)))
        return super().spans_until(now)

    @property
    def end(self) -> float:
        return max([super().end, *(transfer.end for transfer in self.sent)])
