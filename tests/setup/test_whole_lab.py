"""`./lab up` for real: servers, web, worker and beat start, end on SIGTERM with nothing left, and resume with
their data. A killed worker is replaced and its run goes on; ``LAB_RESTARTS=20`` kills so many.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import psutil
import pytest
from django.contrib.contenttypes.models import ContentType
from django.db import connection

from labtools import installation, record
from labtools.layout import Layout
from tests.conftest import ROOT
from tests.figures import tell
from tests.setup.test_first_start import free_port
from tests.workers import trials
from tests.workers.crew import project, queue_runs, until
from webapp.runs.models import Run
from workers import embedded

RESTARTS = int(os.environ.get("LAB_RESTARTS", "1"))
#: A program that ends more often than four times a minute is given pauses.
BETWEEN_KILLS = 20.0
WANTED_SECONDS = 7.0
SERVERS_OF_THE_TESTS = ("DATABASE_URL", "REDIS_URL", "DJANGO_SETTINGS_MODULE", "LAB_VAR")


@contextmanager
def started(var: Path, port: str, log: Path, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """A lab that is up; ended with all its children should the test fail."""
    rest = {name: value for name, value in os.environ.items() if name not in SERVERS_OF_THE_TESTS}
    command = [sys.executable, "lab", "up", "--no-demo", "--workers", "1", "--port", port]
    with log.open("wb") as output:
        lab = subprocess.Popen(
            command,
            cwd=ROOT,
            env=rest | {"LAB_VAR": str(var), **more},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        for _ in range(1200):
            if "is running at" in log.read_text():
                break
            assert lab.poll() is None, log.read_text()
            time.sleep(0.1)
        yield lab
    finally:
        lab.terminate()
        lab.wait(60)


def processes_of(var: Path) -> list[str]:
    """What was started for this folder: it is named in the command line or handed on in the environment."""
    found = []
    for process in psutil.process_iter():
        try:
            told = " ".join(process.cmdline()), process.environ().get("LAB_VAR", "")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if any(str(var) in text for text in told):
            found.append(told[0])
    return found


@pytest.mark.slow
def test_the_lab_starts_ends_without_a_trace_and_resumes_with_its_login_and_the_runs_of_killed_workers(
    tmp_path: Path, django_db_blocker: Any
) -> None:
    if not installation.is_up_to_date(Layout.here(), installation.RUNTIME):
        pytest.skip("this checkout was not set up by ./lab: starting it would install packages")
    tmp_path.chmod(0o711)
    var, port, logs = tmp_path / "var", free_port(), (tmp_path / "first.log", tmp_path / "second.log")
    layout, logins = Layout(ROOT, var), []
    patient = {"RUN_LEASE_SECONDS": "600", "TRIAL_READABLE": trials.__file__}
    patient["TRIAL_COMMAND"] = f"{sys.executable} {trials.__file__}"
    for log in logs:
        with started(var, port, log, **patient) as lab:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/accounts/login/") as page:
                assert b"Sign in" in page.read()
            logins.append((var / "login.txt").read_text())
            assert logins[-1].splitlines()[1].strip() in log.read_text()
            if log == logs[1]:
                with django_db_blocker.unblock(), database_of(layout):
                    kill_workers(layout)
            # The lab itself, its two servers and its three programs, less PostgreSQL where it renamed itself.
            assert len(processes_of(var)) >= 5
            lab.send_signal(signal.SIGTERM)
            assert lab.wait(60) == 0
            assert processes_of(var) == []
    assert logins[0] == logins[1]
    assert ["First start" in log.read_text() for log in logs] == [True, False]


@contextmanager
def database_of(layout: Layout) -> Iterator[None]:
    """The lab's own database inside the block."""
    running = (layout.var / "postgres" / "data" / "postmaster.pid").read_text().splitlines()
    address = urlsplit(embedded.Postgres(layout.var / "postgres", int(running[3])).url)
    there = {"HOST": address.hostname, "PORT": address.port, "NAME": address.path[1:]}
    who = {"USER": address.username, "PASSWORD": unquote(address.password or "")}
    known = dict(connection.settings_dict)
    connection.close()
    ContentType.objects.clear_cache()
    connection.settings_dict |= there | who
    try:
        yield
    finally:
        connection.close()
        ContentType.objects.clear_cache()
        connection.settings_dict |= known


def kill_workers(layout: Layout) -> None:
    """What each killed worker had in hand is at work again within seconds, long before its lease ends."""
    took = []
    (run,) = queue_runs(project(), "sleep 3600")
    until(lambda: attempt_at_work(run) == 1, 60, "the run is at work")
    for attempt in range(2, RESTARTS + 2):
        time.sleep(BETWEEN_KILLS if RESTARTS > 1 else 0.0)
        lab = record.read_record(layout)
        assert lab is not None
        os.kill(next(child.pid for child in lab.children if child.name == "worker"), signal.SIGKILL)
        began = time.monotonic()
        until(lambda: attempt_at_work(run) >= attempt, 60, "its next attempt")  # noqa: B023
        took.append(time.monotonic() - began)
    assert attempt_at_work(run) == RESTARTS + 1
    median, p95 = np.percentile(took, (50, 95)).round(1)
    tell(kills=RESTARTS, **{"s to the next attempt": {"median": median, "p95": p95}})
    if RESTARTS > 1:
        assert p95 <= WANTED_SECONDS


def attempt_at_work(run: Run) -> int:
    """Its number; 0 while the run is not at work."""
    run.refresh_from_db()
    return run.attempt if run.state == Run.State.RUNNING else 0
