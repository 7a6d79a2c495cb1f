"""The ranks of a test's job: forked from one process, so that torch is loaded once and not by each."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.conftest import ROOT


def carry_out(module: str, folder: Path, count: int) -> None:
    """Run ``python -m module folder count``, which ends in ``fork``; an error when a rank fails."""
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-m", module, str(folder), str(count)]
    subprocess.run(command, env=environment, cwd=ROOT, check=True, timeout=600)


def fork(rank: Callable[[int], None], count: int) -> int:
    """Run ``rank`` with each number below ``count`` in a process of its own; 0 when all end well."""
    import torch._dynamo

    from experiments.core.processes import die_with_parent

    die_with_parent()
    # What the first optimizer and the first export of each rank would load.
    torch.export.export(torch.nn.Identity(), (torch.ones(1),))
    forked = multiprocessing.get_context("fork")
    ranks = [forked.Process(target=rank, args=(number,)) for number in range(count)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    return int(any(process.exitcode for process in ranks))
