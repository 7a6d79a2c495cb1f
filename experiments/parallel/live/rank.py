"""One process of a measured run, forked from a process that has loaded this module."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # the first optimizer of each rank would load it
import torch.distributed as dist
import torch.export._trace  # a step that is cut into stages would load it
from torch._C._distributed_c10d import FileStore
from torch.profiler import ProfilerActivity, profile, record_function

from experiments.core.fork_server import serve
from experiments.parallel.live.calibration import threads
from experiments.parallel.live.handover_counter import HandoverCounter
from experiments.parallel.live.job import TIMED_STEPS, Job
from experiments.parallel.live.model import built
from experiments.parallel.live.profiled import peak_bytes
from experiments.parallel.live.runner import passes_for, runner_for
from experiments.parallel.live.timings import in_turn, timed_messages, timed_units, timed_update

TIMEOUT = datetime.timedelta(seconds=120)
PROFILED = "profiled step"


def main(folder: str, rank: str) -> None:
    job = Job.load(Path(folder))
    torch.set_num_threads(threads(job.ranks))
    _rank(job, int(rank))


def _device(job: Job, rank: int) -> tuple[str, str]:
    """A GPU each with NCCL where there are enough, else the CPU with gloo."""
    if torch.cuda.is_available() and torch.cuda.device_count() >= job.ranks:
        torch.cuda.set_device(rank)
        return f"cuda:{rank}", "nccl"
    return "cpu", "gloo"


def _rank(job: Job, rank: int) -> None:
    device, backend = _device(job, rank)
    store = FileStore(str(job.folder / "store"), job.ranks)
    dist.init_process_group(backend, store=store, rank=rank, world_size=job.ranks, timeout=TIMEOUT)
    try:
        job.save_report(rank, {"device": device, "backend": backend, **_measure(job, rank, device)})
    finally:
        dist.destroy_process_group()


def _measure(job: Job, rank: int, device: str) -> dict[str, Any]:
    """Steps: the first gives the gradients, the third is profiled, those after it are timed, in turn with
    what a prediction of them needs.
    """
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device != "cpu" else [])]
    with profile(activities=activities, profile_memory=True, record_shapes=True) as profiler:
        made = built(job.source, job.seed, device)
        runner = runner_for(job, rank, made)
        runner.gradients_of_step()
        job.save_tensors("gradients", rank, runner.gradients())
        runner.update()
        runner.step()
        if device != "cpu":
            torch.cuda.reset_peak_memory_stats(device)
        with record_function(PROFILED), HandoverCounter() as counted:
            runner.step()
    peak = (
        torch.cuda.max_memory_allocated(device)
        if device != "cpu"
        else peak_bytes(profiler.profiler.kineto_results.events(), PROFILED)
    )
    whole = passes_for(job, built(job.source, job.seed, device))
    steps, passes = zip(*in_turn(runner.step, whole, TIMED_STEPS, device), strict=True)
    job.save_tensors("weights", rank, runner.weights())
    return {
        "step_times": steps,
        "passes": passes,
        "update": timed_update(runner.optimizer, device),
        "exchange": runner.exchange,
        "messages": _messages(job, rank, device, runner.unit_tensors),
        "peak_bytes": peak,
        "bytes_by_collective": dict(sorted(counted.bytes.items())),
    }


def _messages(job: Job, rank: int, device: str, unit_tensors: int) -> list[dict[str, Any]]:
    """FSDP2 has its own way of gathering and scattering."""
    rows = timed_messages(rank, device) if job.ranks > 1 else []
    if not rows or not unit_tensors:
        return rows
    others = [row for row in rows if row["kind"] in ("all_reduce", "send")]
    return others + timed_units(device, unit_tensors, job.plan.zero == 3)


if __name__ == "__main__":
    serve(main)
