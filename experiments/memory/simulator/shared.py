"""Several devices that do the same step at the same time and share one host link.

Each device has its own compute lane, memory, and channels behind the host; the link's bandwidth or its tokens are
shared (``link``). The devices are advanced together, always the one that wants to go on earliest, so a transfer is
queued only when nothing that could be queued before it is left. When a transfer joins, those under way may end later
than was known: each device is told, and looks at the clock again before it goes on.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from experiments.core.errors import BadInput
from experiments.memory.interface.machine import Machine
from experiments.memory.interface.plan import MemoryPlan, OnHost
from experiments.memory.interface.release import Release
from experiments.memory.interface.space import Paging
from experiments.memory.interface.transform import transformed
from experiments.memory.simulator.engine import Run
from experiments.memory.simulator.link import SharedLink, Transfer
from experiments.memory.simulator.prepared import Prepared
from experiments.memory.simulator.recorded import RecordedRun, Recording
from experiments.memory.simulator.report import Simulation
from experiments.workloads.step import Step

SomeRun = TypeVar("SomeRun", bound="SharedRun")


def run_shared(
    step: Step, plans: Sequence[MemoryPlan], machine: Machine, discipline: str = "fair"
) -> list[Simulation]:
    """One step on as many devices as there are ``plans``, all begun together; ``discipline`` is fair or turns.

    ``machine`` is one device's, its host link the one that all share (its ``sharers`` are these devices). ``BadInput``
    where a plan needs what is not carried out here: pages, ops on the host, copies by the processor that computes.
    """
    runs = _runs(SharedRun, step, plans, machine, discipline)
    advance(runs)
    return [run.report() for run in runs]


def record_shared(
    step: Step, plans: Sequence[MemoryPlan], machine: Machine, discipline: str, peaks: Sequence[int]
) -> list[Recording]:
    """What ``run_shared``, which found these ``peaks``, did when: a recording for each device."""
    runs = _runs(RecordedSharedRun, step, plans, machine, discipline)
    for run, peak in zip(runs, peaks, strict=True):
        run.watch(peak)
    advance(runs)
    return [run.recording for run in runs]


def _runs(
    kind: type[SomeRun], step: Step, plans: Sequence[MemoryPlan], machine: Machine, discipline: str
) -> list[SomeRun]:
    for plan in plans:
        _refuse(plan, machine)
    alone = replace(machine, sharers=1)
    link = SharedLink(alone, len(plans), discipline)
    runs: list[SomeRun] = []
    for device, plan in enumerate(plans):
        runs.append(kind(Prepared(transformed(step, plan), alone), plan, link, device, runs))
    return runs


def _refuse(plan: MemoryPlan, machine: Machine) -> None:
    reasons = (
        (isinstance(plan.space, Paging), "pages"),
        (isinstance(plan.space, Release), "the rules of a published release"),
        (any(isinstance(move, OnHost) for move in plan.moves), "ops on the host"),
        (machine.synchronous, "copies by the processor that computes"),
    )
    for asked, what in reasons:
        if asked:
            raise BadInput(f"asks for {what}", "plan", "copies between devices and tiers")


def advance(runs: Sequence[SharedRun]) -> None:
    """Run all to their ends, in the order of their clocks (ties: the lower device)."""
    steps = [run.walk() for run in runs]
    clocks = [(0.0, device) for device in range(len(runs))]
    while clocks:
        _, device = heapq.heappop(clocks)
        time = next(steps[device], None)
        if time is not None:
            heapq.heappush(clocks, (time, device))


class SharedRun(Run):
    """A device's step whose copies pass a link that others use too. ``sent`` are its transfers, ``latest`` those of
    each tensor and way.
    """

    def __init__(
        self,
        prepared: Prepared,
        plan: MemoryPlan,
        link: SharedLink,
        device: int,
        all_runs: Sequence[SharedRun],
    ) -> None:
        super().__init__(prepared, plan, None)
        self.link, self.device, self.all_runs = link, device, all_runs
        self.sent: list[Transfer] = []
        self.tensors: dict[Transfer, int] = {}
        self.latest: dict[tuple[int, str], Transfer] = {}

    def send_out(self, tensor: int, size: float, tier: str) -> float:
        return self._send(tensor, size, tier, "out", None)

    def send_back(self, tensor: int, size: float, tier: str) -> float:
        return self._send(tensor, size, tier, "back", self.latest.get((tensor, "out")))

    def _send(self, tensor: int, size: float, tier: str, way: str, after: Transfer | None) -> float:
        ready = self.now if after is None else max(self.now, self.copied[tensor])
        beyond = self.channels.beyond(size, tier, way, ready)
        latency = self.link.rates[way].latency
        transfer = Transfer(self.device, way, latency, size, self.now, beyond, after)
        self.channels.moved[way] += size
        self.sent.append(transfer)
        self.tensors[transfer] = tensor
        self.latest[tensor, way] = transfer
        for changed in self.link.send(transfer, self.now):
            if changed is not transfer:
                self.all_runs[changed.device].ends_at(changed)
        return transfer.end

    def ends_at(self, transfer: Transfer) -> None:
        """``transfer`` ends at another time than was known."""
        tensor, out = self.tensors[transfer], transfer.way == "out"
        if self.latest[tensor, transfer.way] is transfer:
            (self.copied if out else self.arrival)[tensor] = transfer.end
        for place, copy in enumerate(self.leaving):
            if copy.tensor == tensor and bool(copy.size) == out:
                self.leaving[place] = copy._replace(time=transfer.end)
        heapq.heapify(self.leaving)

    def last_copy(self) -> float:
        return max([self.channels.end, *(transfer.end for transfer in self.sent)])

    def report(self) -> Simulation:
        self.link.play(self.now)
        for transfer in self.sent:
            if transfer.began >= 0:
                self.channels.spans[transfer.way].append((transfer.began, min(transfer.gone, self.now)))
        return super().report()


class RecordedSharedRun(RecordedRun, SharedRun):
    """A device's step on a shared link, watched."""
