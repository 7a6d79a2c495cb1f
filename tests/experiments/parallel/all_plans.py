"""The ranks of ``test_live``: carry out two steps of every job of a folder in one process group and save
gradients and weights.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from experiments.core.processes import die_with_parent
from experiments.parallel.live.job import Job
from experiments.parallel.live.model import Built, built
from experiments.parallel.live.runner import runner_for
from tests.experiments.parallel.ranks import fork


def jobs_of(folder: str) -> list[tuple[Job, Built]]:
    """Every job of the folder with its model, which each rank that is forked afterwards has a copy of."""
    jobs = [Job.load(path.parent) for path in sorted(Path(folder).glob("*/job.json"))]
    return [(job, built(job.source, job.seed, "cpu")) for job in jobs]


def carry_out(jobs: list[tuple[Job, Built]], folder: str, rank: int, ranks: int) -> None:
    die_with_parent()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=FileStore(f"{folder}/store", ranks), rank=rank, world_size=ranks)
    for job, model in jobs:
        runner = runner_for(job, rank, model)
        runner.gradients_of_step()
        job.save_tensors("gradients", rank, runner.gradients())
        runner.update()
        runner.step()
        job.save_tensors("weights", rank, runner.weights())
    dist.destroy_process_group()


if __name__ == "__main__":
    count, read = int(sys.argv[2]), jobs_of(sys.argv[1])
    sys.exit(fork(lambda rank: carry_out(read, sys.argv[1], rank, count), count))
