"""The small problem that a measured run of training solves: a model, a data set that is visited again and
again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from experiments.core.errors import BadInput
from experiments.parallel.interface import FORWARD, ParallelPlan
from experiments.parallel.live.job import Job
from experiments.parallel.live.model import Built, built


@dataclass(frozen=True)
class TrainingJob(Job):
    """A rank for each device: those of the workers, then those that only serve or wait to take part."""

    @property
    def ranks(self) -> int:
        adaptation = self.plan.training.adaptation if self.plan.training else None
        if adaptation is not None:
            return adaptation.most
        return len(set(self.plan.devices) | set(self.plan.synchronization.servers))


class TrainingProblem:
    """``built`` holds the whole data set. Parts are numbered as a single process would visit them.

    ``parts`` of equal size make a mini-batch; after the last mini-batch of the data set comes the first
    again.
    """

    def __init__(self, job: Job) -> None:
        assert job.plan.training is not None
        self.plan, self.training = job.plan, job.plan.training
        self.parts = job.plan.micro_batches // job.plan.steps
        mini_batch = job.plan.batch // job.plan.steps
        options = replace(job.source.options, batch=self.training.dataset * mini_batch)
        self.built: Built = built(replace(job.source, options=options), job.seed, "cpu")
        self._positions = positions(job.plan)

    def part(self, position: int) -> tuple[Tensor, ...]:
        """Part number ``position`` of all that are ever visited."""
        within = position % (self.training.dataset * self.parts)
        return self.built.micro_batch(within, self.plan.micro_batch_samples)

    def position(self, micro_batch: int) -> int:
        return self._positions[micro_batch]

    def refuse_tied(self) -> None:
        """Weights that two stages share would drift apart, since each updates its own."""
        named = self.built.module.named_parameters(remove_duplicate=False)
        names = [name for name, _ in named]
        if len(names) > len(list(self.built.module.parameters())) and len(self.plan.stages) > 1:
            raise BadInput(
                "has weights that several layers share", "spec.workload", "a model without, or one stage"
            )


def positions(plan: ParallelPlan) -> dict[int, int]:
    """When each micro-batch is visited, whatever its number: the replicas of the first stage take turns."""
    replicas = plan.stages[0].workers
    found = {}
    for replica, worker in enumerate(replicas):
        forwards = [s for s in plan.workers[worker].slots if s.kind == FORWARD and s.stage == 0]
        found.update({s.micro_batch: i * len(replicas) + replica for i, s in enumerate(forwards)})
    return found
