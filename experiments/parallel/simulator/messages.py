"""What travels in a step: between stages, and among the devices that hold the same weights."""

from __future__ import annotations

import functools

from experiments.hardware.patterns import CHAIN
from experiments.parallel.interface import ParallelPlan, PlanningEstimate
from experiments.parallel.simulator.network import Message, Network
from experiments.parallel.simulator.stages import StageFigures


class StepMessages:
    """The messages of a plan on a network, each made once; sizes are bytes."""

    def __init__(
        self, plan: ParallelPlan, estimate: PlanningEstimate, figures: StageFigures, network: Network
    ) -> None:
        self._plan, self._estimate, self._figures, self._network = plan, estimate, figures, network
        self._between: dict[tuple[int, int, float], Message] = {}
        self._sums: dict[tuple[int, str, float, bool, str], Message] = {}

    @functools.cached_property
    def longest_send(self) -> float:
        """Seconds of the longest send between stages, alone on its way; 0 where there is none."""
        found = 0.0
        for pair, size in self._figures.crossings.items():
            sender, receiver = (self._plan.stages[number].workers[0] for number in pair)
            if size and sender != receiver:
                message = self.between_workers(sender, receiver, size * self._figures.portion(0))
                found = max(found, message.seconds)
        return found

    def between_workers(self, sender: int, receiver: int, size: float) -> Message:
        """Return what a worker sends to another, from all devices at once."""
        key = sender, receiver, size
        if key not in self._between:
            self._between[key] = self._parts_between(sender, receiver, size)
        return self._between[key]

    def _parts_between(self, sender: int, receiver: int, size: float) -> Message:
        """Each of the sender's devices sends an equal part; parts travel at once."""
        senders, receivers = self._plan.workers[sender].devices, self._plan.workers[receiver].devices
        targets = [receivers[i % len(receivers)] for i in range(len(senders))]
        return self._network.transfers(senders, targets, size / len(senders))

    def among(
        self, stage: int, kind: str, size: float, experts: bool = False, algorithm: str = ""
    ) -> Message:
        """Return a collective over all that hold the same weights of a stage.

        The devices of a tensor-parallel group do theirs at once.
        """
        algorithm = algorithm or self._plan.synchronization.algorithm
        key = stage, kind, size, experts, algorithm
        if key not in self._sums:
            divided = kind != "all_reduce"
            groups_of = self._plan.sharing_groups if divided else self._plan.holders
            groups = groups_of(self._plan.stages[stage], experts)
            self._sums[key] = self._network.groups(kind, groups, size, algorithm)
        return self._sums[key]

    def among_copies(self, stage: int, size: float, experts: bool) -> Message | None:
        """Return the sum of gradients' parts over the groups that hold copies of them, if there are any."""
        plan, hosted = self._plan, self._plan.stages[stage]
        sharing = plan.sharing(hosted, experts)
        if not plan.zero or sharing == plan.degree(hosted, experts):
            return None
        groups, part = plan.copy_groups(hosted, experts), size / sharing
        return self._network.groups("all_reduce", groups, part, plan.synchronization.algorithm)

    def one_by_one(self, stage: int, kind: str, size: float, experts: bool, tensors: int) -> Message:
        """Return as many collectives, one after the other, as there are tensors."""
        return self.among(stage, kind, size / tensors, experts).times(tensors)

    def hand_out(self, stage: int, layers: range, size: float, experts: bool) -> Message:
        """Return one gather of all, or a broadcast around the ring for each owner of whole tensors."""
        if not self._plan.synchronization.by_owner:
            return self.among(stage, "all_gather", size, experts)
        tensors = sum(float(self._estimate.layer_parameters[layer]) > 0 for layer in layers)
        owners = min(self._plan.sharing(self._plan.stages[stage], experts), tensors)
        return self.among(stage, "all_gather", size / owners, experts, CHAIN).times(owners)
