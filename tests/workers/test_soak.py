"""Many short runs, one after another, as a week of a team's: the worker takes no more memory for them, holds
nothing open, and leaves no file that nobody knows.

``LAB_SOAK=5000`` for so many runs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.core.files.base import ContentFile
from django.test import override_settings

from tests.figures import tell
from tests.webapp.cast import make_cast
from tests.workers.crew import Crew, until
from webapp.artifacts.models import Artifact, Blob
from webapp.artifacts.services import store_upload
from webapp.runs.models import Run, RunDocument

RUNS = int(os.environ.get("LAB_SOAK", "12"))
#: Of which one is the reading of a file that was just uploaded.
ROUND = 6
POLICIES = ("fifo", "srtf", "tiresias", "las", "sjf")
MOST_GROWTH = 0.10


def jobs(number: int) -> ContentFile[bytes]:
    rows = "".join(f"{10 * job},1,{60 + number + job}\n" for job in range(8))
    return ContentFile(f"submit,gpus,service\n{rows}".encode())


def queue_round(project: Any, user: Any, number: int) -> None:
    """A file to read, and the runs of all policies on it, which wait until it was read."""
    artifact = store_upload(project, user, f"jobs-{number}.csv", jobs(number))
    reading = artifact.runs.get()
    for policy in POLICIES:
        spec = {
            "family": "cluster",
            "policy": policy,
            "knobs": {},
            "workload": {"source": f"artifact:{artifact.pk}", "format": "auto", "options": {}},
            "hardware": "a100-40g",
            "mode": "simulated",
            "seed": number,
        }
        Run.objects.create(
            project=project,
            artifact=artifact,
            owner=user,
            family="cluster",
            policy=policy,
            mode="simulated",
            seed=number,
            spec=spec,
            after=reading,
        )


def measure(worker: psutil.Process) -> dict[str, int]:
    with worker.oneshot():
        return {
            "memory": worker.memory_full_info().uss,
            "descriptors": worker.num_fds(),
            "threads": worker.num_threads(),
        }


@pytest.mark.slow
def test_many_short_runs_take_no_more_memory_and_leave_no_file(crew: Crew, tmp_path: Path) -> None:
    cast, var = make_cast(), tmp_path / "var"
    with override_settings(MEDIA_ROOT=var / "files"):
        crew.hire(TRIAL_COMMAND="", TRIAL_READABLE="", RUN_LEASE_SECONDS="30")
        worker, seen = psutil.Process(crew.workers[0].pid), []
        for number in range(RUNS // ROUND):
            queue_round(cast.project, cast.ada, number)
            until(lambda: not Run.objects.exclude(state__in=Run.FINAL).exists(), 120, "the round ended")
            seen.append(measure(worker))
        files = [path for path in (var / "files").rglob("*") if path.is_file()]
        assert {path.name for path in files} == set(Blob.objects.values_list("sha256", flat=True))
    assert Run.objects.count() == RUNS // ROUND * ROUND
    assert set(Run.objects.values_list("state", "attempt")) == {("succeeded", 1)}
    assert set(Artifact.objects.values_list("state", flat=True)) == {"ready"}
    assert RunDocument.objects.count() == Run.objects.exclude(kind="inspect").count()
    assert list((tmp_path / "trials").iterdir()) == list((var / "held").iterdir()) == []
    assert not list((var / "cache").rglob("*.part"))
    early, late = seen[len(seen) // 10], seen[-1]
    growth = late["memory"] / early["memory"] - 1
    figures = {
        "runs": Run.objects.count(),
        "early": early,
        "late": late,
        "growth of memory": round(growth, 4),
    }
    tell(**figures)
    if len(seen) > 10:  # what a worker loads with its first runs is no growth
        assert growth < MOST_GROWTH
        assert late["descriptors"] <= early["descriptors"] + 4 and late["threads"] <= early["threads"]
