"""A real Celery worker on the test's database, for tests that follow a run from the page to its outcome."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.db import connection

from tests.conftest import ROOT

COMMAND = [
    sys.executable,
    "-m",
    "celery",
    "-A",
    "workers.app",
    "worker",
    "--concurrency",
    "2",
    "-l",
    "warning",
]


def core_of_the_worker() -> int:
    """One of the cores that this process of the tests may use, another one for the next process."""
    cores = sorted(os.sched_getaffinity(0))
    return cores[int(settings.PROCESS) % len(cores)]


@contextmanager
def working(folder: Path, all_cores: bool = False, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """Two slots; files under ``folder/var/files``; ``more`` of its environment; ended with all its trials on
    leaving. It has one core: the threads of a measured run, which gets as many as there are, spin while they
    wait for one that another test keeps from its core.
    """
    database = connection.settings_dict
    login = f"{database['USER']}:{database['PASSWORD']}@{database['HOST']}:{database['PORT']}"
    environment = os.environ | {
        "DATABASE_URL": f"postgresql://{login}/{database['NAME']}",
        "REDIS_URL": settings.REDIS_URL,
        "DJANGO_SETTINGS_MODULE": "webapp.settings.test",
        "LAB_VAR": str(folder / "var"),
        **more,
    }
    with (folder / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            COMMAND, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        if not all_cores:
            os.sched_setaffinity(process.pid, {core_of_the_worker()})
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
