"""`./lab up` for real: servers, web, worker and beat start, end on SIGTERM with nothing left, and resume with
their data.
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

import psutil
import pytest

from labtools import installation
from labtools.layout import Layout
from tests.conftest import ROOT
from tests.setup.test_first_start import free_port

SERVERS_OF_THE_TESTS = ("DATABASE_URL", "REDIS_URL", "DJANGO_SETTINGS_MODULE", "LAB_VAR")


@contextmanager
def started(var: Path, port: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A lab that is up; ended with all its children should the test fail."""
    rest = {name: value for name, value in os.environ.items() if name not in SERVERS_OF_THE_TESTS}
    command = [sys.executable, "lab", "up", "--no-demo", "--workers", "1", "--port", port]
    with log.open("wb") as output:
        lab = subprocess.Popen(
            command, cwd=ROOT, env=rest | {"LAB_VAR": str(var)}, stdout=output, stderr=subprocess.STDOUT
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
def test_the_lab_starts_ends_without_a_trace_and_resumes_with_its_login(tmp_path: Path) -> None:
    if not installation.is_up_to_date(Layout.here(), installation.RUNTIME):
        pytest.skip("this checkout was not set up by ./lab: starting it would install packages")
    tmp_path.chmod(0o711)
    var, port, logs = tmp_path / "var", free_port(), (tmp_path / "first.log", tmp_path / "second.log")
    logins = []
    for log in logs:
        with started(var, port, log) as lab:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/accounts/login/") as page:
                assert b"Sign in" in page.read()
            logins.append((var / "login.txt").read_text())
            assert logins[-1].splitlines()[1].strip() in log.read_text()
            # The lab itself, its two servers and its three programs, less PostgreSQL where it renamed itself.
            assert len(processes_of(var)) >= 5
            lab.send_signal(signal.SIGTERM)
            assert lab.wait(60) == 0
            assert processes_of(var) == []
    assert logins[0] == logins[1]
    assert ["First start" in log.read_text() for log in logs] == [True, False]
