"""One rank of ``test_live``: carries out every job of a folder in one process group and saves its gradients."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from experiments.parallel.live.job import Job
from experiments.parallel.live.model import built
from experiments.parallel.live.rank import die_with_parent, runner_for


def main(folder: str, rank: int) -> None:
    die_with_parent()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=FileStore(f"{folder}/store", 2), rank=rank, world_size=2)
    for path in sorted(Path(folder).glob("*/job.json")):
        job = Job.load(path.parent)
        runner = runner_for(job, rank, built(job.source, job.seed, "cpu"))
        runner.gradients_of_step()
        job.save_gradients(rank, runner.gradients())
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
