"""Where each rank of a job stands, and the groups in which ranks communicate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch.distributed as dist

from experiments.parallel.interface import ParallelPlan


def replicas_only(plan: ParallelPlan) -> bool:
    """Whether every device has the whole model: one stage, nothing cut."""
    return len(plan.stages) == 1 and len(plan.devices) == len(plan.workers)


class Place(NamedTuple):
    """A rank carries out one device: the one at ``device`` of its worker's."""

    worker: int
    device: int


class Places:
    """Ranks are numbered over the workers' devices, worker by worker."""

    def __init__(self, plan: ParallelPlan) -> None:
        self.plan = plan
        self.of_rank = tuple(
            Place(number, device)
            for number, worker in enumerate(plan.workers)
            for device in range(len(worker.devices))
        )
        self._first = [0]
        for worker in plan.workers:
            self._first.append(self._first[-1] + len(worker.devices))

    def rank(self, worker: int, device: int) -> int:
        return self._first[worker] + device

    def together(self, worker: int) -> tuple[int, ...]:
        """The ranks of a worker: its tensor-parallel group."""
        return tuple(range(self._first[worker], self._first[worker + 1]))


def new_groups(sets: Iterable[tuple[int, ...]]) -> dict[tuple[int, ...], dist.ProcessGroup]:
    """A group for each set of several ranks. Every rank of the job must ask for the same sets, its own or not."""
    return {ranks: dist.new_group(list(ranks)) for ranks in sorted(set(sets)) if len(ranks) > 1}
