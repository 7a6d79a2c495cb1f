"""Starts the processes of a job, waits for them, and ends them all whatever happens."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from experiments.core.errors import LabError
from experiments.core.progress import Progress
from experiments.parallel.live.calibration import threads
from experiments.parallel.live.job import Job

TIMEOUT = 600.0
POLL = 0.05
RANK = "experiments.parallel.live.rank"
ROOT = Path(__file__).resolve().parents[3]


def launch(job: Job, progress: Progress, module: str = RANK, timeout: float = TIMEOUT) -> None:
    """Start one process for each rank, with the job's folder and its number.

    ``LabError`` with the last line of the first that fails, or when ``timeout`` seconds have passed.
    """
    started: dict[int, subprocess.Popen[bytes]] = {}
    deadline = time.monotonic() + timeout
    try:
        for rank in range(job.ranks):
            started[rank] = _start(job, module, rank)
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


def _start(job: Job, module: str, rank: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", module, str(job.folder), str(rank)]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    # gloo would look the host's name up and use its address, which a sandbox without network does not have.
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": path}
    environment["OMP_NUM_THREADS"] = str(threads(job.ranks))
    with _log(job, rank).open("wb") as log:
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )


def _log(job: Job, rank: int) -> Path:
    return job.folder / f"log-{rank}.txt"


def _refuse_failed(job: Job, started: dict[int, subprocess.Popen[bytes]]) -> None:
    for rank, process in started.items():
        if process.poll():
            lines = _log(job, rank).read_text(errors="replace").strip().splitlines()
            last = lines[-1] if lines else "no output"
            raise LabError(f"rank {rank} ended with code {process.returncode}: {last}")
