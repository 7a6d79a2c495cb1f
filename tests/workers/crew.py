"""Worker processes that a test starts, kills and replaces, and the runs it gives them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from webapp.accounts.models import Project, Team
from webapp.artifacts.models import Artifact
from webapp.runs.models import Run

WORKER = """
import threading
import django
django.setup()
from workers.dispatcher import Dispatcher
Dispatcher(2).start()
threading.Event().wait()
"""


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
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def hire(self, count: int = 1) -> None:
        for _ in range(count):
            with self.log.open("ab") as output:
                self.workers.append(
                    subprocess.Popen([sys.executable, "-c", WORKER], env=self.environment, stderr=output)
                )

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        """``kill -9``, and nothing else: what it was doing must be put right by others."""
        worker.kill()
        worker.wait()
        self.workers.remove(worker)

    def dismiss(self) -> None:
        for worker in list(self.workers):
            self.kill(worker)


def project() -> Project:
    team = Team.objects.create(name="crew", slug="crew")
    return Project.objects.create(team=team, name="crew", slug="crew")


def queue_runs(project: Project, *behaviours: str) -> list[Run]:
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
                "knobs": {"behaviour": behaviour},
                "workload": {"source": f"artifact:{trace.pk}", "format": "auto", "options": {}},
                "hardware": "a100-40g",
                "mode": "simulated",
                "seed": number,
            },
        )
        for number, behaviour in enumerate(behaviours)
    ]


def all_ended(runs: list[Run]) -> bool:
    return not Run.objects.filter(pk__in=[run.pk for run in runs]).exclude(state__in=Run.FINAL).exists()
