"""Worker processes that a test starts, kills and replaces, and the runs it gives them."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from django.db import connections

from webapp.accounts.models import Project, Team
from webapp.artifacts.models import Artifact
from webapp.runs import lifecycle
from webapp.runs.models import Run
from workers.process_tree import descendants, is_zombie

WORKER = """
import threading
import django
django.setup()
from workers.dispatcher import Dispatcher
Dispatcher(2).start()
threading.Event().wait()
"""
#: Ends as by ``kill -9`` at the first moment at which others see what it has claimed.
STRICKEN = (
    """
import os, signal
os.getloadavg = lambda: os.kill(os.getpid(), signal.SIGKILL)
"""
    + WORKER
)
#: Has everything loaded that a worker needs, and forks one for each line it reads, as Celery's parent does.
PARENT = """
import os, signal, sys, threading
import django
django.setup()
from workers import sandbox
from workers.dispatcher import Dispatcher
sandbox.best_tier()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in sys.stdin:
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        Dispatcher(2).start()
        threading.Event().wait()
    print(child, flush=True)
"""


#: Started by the test itself, or forked by what the test started.
Worker = subprocess.Popen[bytes] | psutil.Process


def until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)


@dataclass
class Crew:
    """Each worker has two slots and is started as Celery would start it, less the messages."""

    environment: Mapping[str, str]
    log: Path
    workers: list[Worker] = field(default_factory=list)
    _parent: subprocess.Popen[bytes] | None = None

    def hire(self, count: int = 1, program: str = WORKER, **settings: str) -> None:
        """Start ``count`` workers, with environment variables that only they get."""
        for _ in range(count):
            self.workers.append(self._start({**self.environment, **settings}, program))

    def fork(self, count: int = 1) -> None:
        """Start ``count`` workers below a parent that is started with the first: for a test that has many."""
        for _ in range(count):
            self.workers.append(psutil.Process(self._fork()))

    def _fork(self) -> int:
        if self._parent is None:
            self._parent = self._start(self.environment, PARENT)
        assert self._parent.stdin is not None and self._parent.stdout is not None
        self._parent.stdin.write(b"\n")
        self._parent.stdin.flush()
        return int(self._parent.stdout.readline())

    def _start(self, environment: Mapping[str, str], program: str) -> subprocess.Popen[bytes]:
        talk = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE} if program is PARENT else {}
        with self.log.open("ab") as output:
            return subprocess.Popen([sys.executable, "-c", program], env=environment, stderr=output, **talk)

    def at_work(self) -> dict[int, list[str]]:
        """What the living workers have started and has not ended: process numbers and command lines."""
        found = {}
        for worker in self.workers:
            found |= {below: command_line(below) for below in descendants(worker.pid)}
        return {pid: command for pid, command in found.items() if not is_zombie(pid)}

    def left_behind(self) -> dict[int, list[str]]:
        """All of the machine's processes that bear the crew's mark, whoever their parent is by now.

        The mark is the folder in which the crew makes the trials' folders: the guard, bubblewrap and the
        trial itself have it in their command lines, whatever they start inherits it as its HOME.
        """
        mark = self.environment["TMPDIR"]
        return {pid: command_line(pid) for pid in psutil.pids() if mark in told_of(pid)}

    def kill(self, worker: Worker) -> None:
        """``kill -9``, and nothing else: what it was doing must be put right by others."""
        worker.kill()
        worker.wait()
        self.workers.remove(worker)

    def dismiss(self) -> None:
        for worker in list(self.workers):
            self.kill(worker)
        if self._parent is not None:
            with self._parent as parent:
                parent.kill()
            self._parent = None


def command_line(pid: int) -> list[str]:
    return _read(pid, "cmdline").split("\0")


def told_of(pid: int) -> str:
    """The command line and the environment; nothing of a process that has ended or is not ours to read."""
    return "" if is_zombie(pid) else _read(pid, "cmdline") + _read(pid, "environ")


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""


def project() -> Project:
    team = Team.objects.create(name="crew", slug="crew")
    return Project.objects.create(team=team, name="crew", slug="crew")


def queue_runs(project: Project, *behaviors: str) -> list[Run]:
    """Queued policy runs on a job trace that needs no file; the knob says how each behaves."""
    trace, _ = Artifact.objects.get_or_create(
        project=project, name="trace", zoo="trace", source="zoo", state="ready", kind="jobs"
    )
    return [
        Run.objects.create(
            project=project,
            artifact=trace,
            family="cluster",
            policy="fifo",
            mode="simulated",
            seed=number,
            spec={
                "family": "cluster",
                "policy": "fifo",
                "knobs": {"behavior": behavior},
                "workload": {"source": f"artifact:{trace.pk}", "format": "auto", "options": {}},
                "hardware": "a100-40g",
                "mode": "simulated",
                "seed": number,
            },
        )
        for number, behavior in enumerate(behaviors)
    ]


def all_ended(runs: list[Run]) -> bool:
    return not Run.objects.filter(pk__in=[run.pk for run in runs]).exclude(state__in=Run.FINAL).exists()


def reap_until(done: threading.Event) -> None:
    """What beat sends every ten seconds."""
    while not done.wait(1):
        lifecycle.reap()
    connections.close_all()
