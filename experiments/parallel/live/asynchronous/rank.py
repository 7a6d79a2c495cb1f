"""One process of a training, forked from a process that has loaded this module."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import torch
import torch._dynamo  # the first optimizer of each rank would load it
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import FileStore

from experiments.core.fork_server import serve
from experiments.parallel.interface.parameter_servers import has_servers
from experiments.parallel.live.asynchronous.problem import TrainingJob
from experiments.parallel.live.asynchronous.replicas import ReplicaTrainer
from experiments.parallel.live.asynchronous.reports import RankReport
from experiments.parallel.live.asynchronous.servers import ServedWorker, Server
from experiments.parallel.live.asynchronous.stages import StageRunner
from experiments.parallel.live.rank import TIMEOUT


class Trainer(Protocol):
    """A rank's part of the training."""

    def run(self) -> RankReport: ...
    def weights(self) -> dict[str, Tensor]: ...


def trainer_for(job: TrainingJob, rank: int) -> Trainer:
    assert job.plan.training is not None
    if has_servers(job.plan):
        return (ServedWorker if rank < len(job.plan.workers) else Server)(job, rank)
    return (StageRunner if job.plan.training.weights else ReplicaTrainer)(job, rank)


def train(job: TrainingJob, rank: int) -> None:
    """In the process group that stands. One thread: several processes share the host's cores."""
    torch.set_num_threads(1)
    trainer = trainer_for(job, rank)
    job.save_report(rank, trainer.run().to_json())
    job.save_tensors("weights", rank, trainer.weights())


def main(folder: str, rank: str) -> None:
    job = TrainingJob.load(Path(folder))
    assert isinstance(job, TrainingJob)
    store = FileStore(str(job.folder / "store"), job.ranks)
    dist.init_process_group("gloo", store=store, rank=int(rank), world_size=job.ranks, timeout=TIMEOUT)
    try:
        train(job, int(rank))
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    serve(main)
