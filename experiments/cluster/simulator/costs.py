"""What it costs a job to start, by what happened to it before."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from experiments.cluster.interface import ClusterPolicy, Gang, Machines


class StartCosts:
    """Seconds without progress at the beginning of an execution, as the policy's knobs say."""

    def __init__(self, policy: ClusterPolicy, machines: Machines) -> None:
        self.policy, self.machines = policy, machines
        self.last: dict[int, Gang] = {}
        self.left: dict[int, float] = {}
        self.suspended: set[int] = set()
        self.free = policy.plans_costs or not any(
            (
                *(policy.start_cost, policy.restart_cost, policy.resize_cost, policy.migration_cost),
                *(policy.suspend_cost, policy.checkpoint_bytes),
            )
        )

    def remember(self, gang: Gang, left: float) -> None:
        """Note where a job ran when it was stopped, and how much was ``left`` of its start (s)."""
        if not self.free:
            self.last[gang.job], self.left[gang.job] = gang, left

    def suspend(self, job: int) -> None:
        """Note that a job's state stays in the memory of its hosts."""
        self.suspended.add(job)

    def of(self, gang: Gang, executions: int, *, moves: bool, crowded: bool = False) -> float:
        """What it costs that a job which has had so many executions starts as ``gang``.

        ``moves`` says that it ran up to now, ``crowded`` that others have parts of its devices.
        """
        if self.free:
            return 0.0
        policy, last = self.policy, self.last.get(gang.job)
        if not executions or last is None:
            return policy.start_cost
        suspended = gang.job in self.suspended
        self.suspended.discard(gang.job)
        nodes = {node for node, _ in self.machines.by_node(gang.devices)}
        before = {node for node, _ in self.machines.by_node(last.devices)}
        if suspended and nodes == before:
            return policy.suspend_cost + self.left[gang.job]
        if moves and last.devices == gang.devices:
            return self.left[gang.job]  # only its batch or its share changes, which stops nothing
        cost: float | None = policy.restart_cost
        if gang.size != last.size:
            cost = policy.resize_cost
        elif nodes != before:
            cost = policy.migration_cost
        return (policy.restart_cost if cost is None else cost) + self._transfer(nodes | before)

    def _transfer(self, nodes: set[int]) -> float:
        """Writing a checkpoint and reading it again, at the speed of the slowest node."""
        slowest = min(
            (min(self.machines[n].storage, self.machines[n].network) for n in nodes), default=math.inf
        )
        return 2 * self.policy.checkpoint_bytes / slowest


class PartStartCosts(StartCosts):
    """The same where starting is computing: on a part of a device it takes so much longer.

    ``crowding``: how many times as long it takes again where another job computes on the device.
    """

    def __init__(self, policy: ClusterPolicy, machines: Machines, crowding: float = 1.0) -> None:
        super().__init__(policy, machines)
        self.crowding = crowding
        self.slower: dict[int, float] = {}

    def remember(self, gang: Gang, left: float) -> None:
        super().remember(gang, left / self.slower.get(gang.job, 1.0))

    def of(self, gang: Gang, executions: int, *, moves: bool, crowded: bool = False) -> float:
        slower = (self.crowding if crowded else 1.0) / gang.share
        self.slower[gang.job] = slower
        return super().of(gang, executions, moves=moves) * slower


#: Makes the costs of one run.
StartCostsOf: TypeAlias = Callable[[ClusterPolicy, Machines], StartCosts]
