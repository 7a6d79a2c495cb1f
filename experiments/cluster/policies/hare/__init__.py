"""Hare, HPDC'22: jobs as rounds of gradient tasks on unlike GPUs.

- *Relaxed scale-fixed synchronisation*: a round has a fixed number of tasks, but they may run at different
  times, several on one GPU; the next round begins when all are synchronised.
- Tasks are planned in order of their mid-points in a relaxation, each on the GPU where it ends first
  (``plan.py``), gaps included. Plans are made anew when jobs come and end; running tasks are not cut.
- A GPU that takes a task of another job than its last one needs ``switch_cost`` before it, and what starting
  costs the job: ``start_cost`` for a task of its first round, else ``restart_cost`` (``migration_cost`` on a
  node that had none of its earlier rounds) and its state's way to storage and back. The job has the GPU for
  so long, which counts as restarting; its other tasks run on: nothing is resized. Hare's early cleaning and
  speculative retention are what makes that small; they are not modelled beyond it.

How long tasks take on what is known (``tasks``). Every job weighs the same. Only the paper's abstract was at
hand: the order by the better of two forms of Smith's rule and the filling of gaps are chosen here. Plans
stayed below twice the best where a switch is no longer than a task; no bound is known beyond that. Where
stopping loses progress or nodes fail, jobs cannot take turns task by task: then each job, the shortest
first, takes as many of the free GPUs that suit it best as a round has tasks, and keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.cluster.interface import ClusterPolicy, Decider, Machines
from experiments.cluster.interface.policy import NOTHING_LOST
from experiments.cluster.policies.hare.deciders import TaskByTask, WholeJobs
from experiments.cluster.policies.hare.plan import SwitchCosts
from experiments.core.knobs import knob
from experiments.core.policy import SECONDS


@dataclass(frozen=True)
class Hare(ClusterPolicy):
    """Runs the tasks of a round wherever they end first, several on one GPU if it is fast."""

    name: ClassVar[str] = "hare"
    mechanism: ClassVar[str] = "know how long jobs run"
    sees: ClassVar[frozenset[str]] = frozenset({"throughput"})
    models: ClassVar[tuple[str, ...]] = ("tasks",)
    rigid: ClassVar[bool] = False
    effort: ClassVar[str] = SECONDS

    switch_cost: float = knob(
        0.0, "time before a GPU's first task of another job", low=0.0, high=86400.0, unit="s"
    )

    @property
    def plans_costs(self) -> bool:
        """Whether tasks of several jobs take turns on a GPU: nothing is lost between them."""
        return self.preemption_loses == NOTHING_LOST and self.node_mtbf is None

    def begin(self) -> Decider:
        return TaskByTask(self._costs_on) if self.plans_costs else WholeJobs()

    def _costs_on(self, machines: Machines) -> SwitchCosts:
        restart, migration = self.restart_cost, self.migration_cost
        transfers = [2 * self.checkpoint_bytes / min(node.storage, node.network) for node in machines]
        return SwitchCosts(
            switch=self.switch_cost,
            start=self.start_cost,
            restart=restart,
            migration=restart if migration is None else migration,
            transfer=[transfers[node] for node in machines.node_of],
            node_of=machines.node_of,
        )
