"""Hare, HPDC'22: jobs as rounds of gradient tasks on unlike GPUs.

- *Relaxed scale-fixed synchronisation*: a round has a fixed number of tasks, but they may run at different
  times, several on one GPU; the next round begins when all are synchronised.
- Tasks are planned in order of their mid-points in a relaxation, each on the GPU where it ends first
  (``plan.py``), gaps included. Plans are made anew when jobs come and end; running tasks are not cut.
- A GPU that takes a task of another job than its last one needs ``switch_cost`` before it. Hare's early
  cleaning and speculative retention are what makes that small; they are not modelled beyond it.

How long tasks take on what is known (``tasks``). Every job weighs the same. Only the paper's abstract was at
hand: the order by the better of two forms of Smith's rule and the filling of gaps are chosen here. Where
starting costs something or nodes fail, jobs cannot take turns task by task: then each job, the shortest
first, takes as many of the free GPUs that suit it best as a round has tasks, and keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.cluster.interface import ClusterPolicy, Decider
from experiments.cluster.policies.hare.deciders import TaskByTask, WholeJobs
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
    def stops_cost(self) -> bool:
        """Whether a job loses anything when it is stopped between tasks."""
        costs = (self.start_cost, self.restart_cost, self.resize_cost, self.migration_cost)
        return any(costs) or bool(self.checkpoint_bytes) or self.node_mtbf is not None

    def begin(self) -> Decider:
        return WholeJobs() if self.stops_cost else TaskByTask(self.switch_cost)
