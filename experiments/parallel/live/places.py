"""Where each rank of a job stands, and the groups in which ranks communicate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch.distributed as dist
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh

from experiments.core.errors import BadInput
from experiments.parallel.interface import ParallelPlan


class RankPlace(NamedTuple):
    """A rank carries out one device: the one at ``device`` of its worker's."""

    worker: int
    device: int


class Places:
    """Ranks are numbered over the workers' devices, worker by worker."""

    def __init__(self, plan: ParallelPlan) -> None:
        self.plan = plan
        self.of_rank = tuple(
            RankPlace(number, device)
            for number, worker in enumerate(plan.workers)
            for device in range(len(worker.devices))
        )
        self._first = [0]
        for worker in plan.workers:
            self._first.append(self._first[-1] + len(worker.devices))

    def rank(self, worker: int, device: int) -> int:
        return self._first[worker] + device

    def across(self, workers: Sequence[int], device: int) -> tuple[int, ...]:
        """The ranks in the same place of each of ``workers``."""
        return tuple(sorted(self.rank(worker, device) for worker in workers))

    def together(self, worker: int) -> tuple[int, ...]:
        """The ranks of a worker: its tensor-parallel group."""
        return tuple(range(self._first[worker], self._first[worker + 1]))


class Holders(NamedTuple):
    """Workers that hold a parameter.

    ``replicas`` of each stage that reads it, and ``tied``, which hold one copy each. A worker that hosts
    several such stages holds one copy.
    """

    replicas: tuple[tuple[int, ...], ...]
    tied: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, name: str, stages: Sequence[tuple[int, ...]]) -> Holders:
        distinct = {tuple(sorted(workers)): workers for workers in stages}
        rows = tuple(distinct.values())
        if len(rows) == 1:
            return cls(tuple(distinct), ())
        apart = len({worker for row in rows for worker in row}) == sum(map(len, rows))
        if not apart or len({len(row) for row in rows}) > 1:
            what = (
                f"{name} is read by stages that share some of their workers, or have different numbers of "
                "them"
            )
            raise BadInput(what, "plan.stages", "the same workers, or as many others")
        return cls(tuple(distinct), tuple(zip(*rows, strict=True)))

    def replicas_of(self, worker: int) -> tuple[int, ...]:
        return next((row for row in self.replicas if worker in row), ())

    def tied_with(self, worker: int) -> tuple[int, ...]:
        return next((row for row in self.tied if worker in row), ())


def new_groups(sets: Iterable[tuple[int, ...]]) -> dict[tuple[int, ...], dist.ProcessGroup]:
    """A group for each set of several ranks.

    Every rank of the job must ask for the same sets, its own or not.
    """
    return {ranks: dist.new_group(list(ranks)) for ranks in sorted(set(sets)) if len(ranks) > 1}


def mesh_of(group: dist.ProcessGroup, device: str) -> DeviceMesh:
    """The ranks of ``group`` in a row.

    A mesh reads its own rank numbers, so these are real even among fake tensors.
    """
    with unset_fake_temporarily():
        return DeviceMesh.from_group(group, device)
