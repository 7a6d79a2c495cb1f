"""Starts the processes of a job, waits for them, and ends them all whatever happens."""

from __future__ import annotations

import os
import time
from pathlib import Path

from experiments.core.errors import LabError
from experiments.core.forked import ForkedProcess, ForkServer, server_of
from experiments.core.progress import Progress
from experiments.parallel.live.job import Job

TIMEOUT = 600.0
POLL = 0.05
RANK = "experiments.parallel.live.rank"


def launch(job: Job, progress: Progress, module: str = RANK, timeout: float = TIMEOUT) -> None:
    """Start one process for each rank, with the job's folder and its number.

    ``LabError`` with the last line of the first that fails, or when ``timeout`` seconds have passed.
    """
    server, started = server_of(module), dict[int, ForkedProcess]()
    deadline = time.monotonic() + timeout
    try:
        for rank in range(job.ranks):
            started[rank] = _start(server, job, rank)
        progress(0.4, f"{job.ranks} processes started")
        while any(process.poll() is None for process in started.values()):
            _refuse_failed(job, started)
            if time.monotonic() > deadline:
                raise LabError(f"no answer from the ranks after {timeout:.0f} s")
            time.sleep(POLL)
        _refuse_failed(job, started)
    finally:
        for process in started.values():
            process.kill()
        for process in started.values():
            process.wait()


def _start(server: ForkServer, job: Job, rank: int) -> ForkedProcess:
    # gloo would look the host's name up and use its address, which a sandbox without network does not have.
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    with _log(job, rank).open("wb") as log:
        return server.start([str(job.folder), str(rank)], environment, log)


def _log(job: Job, rank: int) -> Path:
    return job.folder / f"log-{rank}.txt"


def _refuse_failed(job: Job, started: dict[int, ForkedProcess]) -> None:
    for rank, process in started.items():
        if process.poll():
            lines = _log(job, rank).read_text(errors="replace").strip().splitlines()
            last = lines[-1] if lines else "no output"
            raise LabError(f"rank {rank} ended with code {process.returncode}: {last}")
