"""The ranks of ``test_training_live``: train every job of a folder in one process group."""

from __future__ import annotations

import sys
from pathlib import Path

import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from experiments.core.processes import die_with_parent
from experiments.parallel.live.asynchronous.problem import TrainingJob
from experiments.parallel.live.asynchronous.rank import train
from experiments.parallel.live.rank import TIMEOUT
from tests.experiments.parallel.ranks import fork


def train_all(folder: str, rank: int, ranks: int) -> None:
    die_with_parent()
    store = FileStore(f"{folder}/store", ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=TIMEOUT)
    for path in sorted(Path(folder).glob("*/job.json")):
        job = TrainingJob.load(path.parent)
        assert isinstance(job, TrainingJob)
        train(job, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    count = int(sys.argv[2])
    sys.exit(fork(lambda rank: train_all(sys.argv[1], rank, count), count))
