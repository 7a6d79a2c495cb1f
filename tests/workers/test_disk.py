"""A worker's disk is full for a while: its host says so, others may take what waits, no run fails for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.small_disk import full, small_disk
from tests.workers.crew import Crew, all_ended, project, queue_runs, until
from webapp.hosts.models import Host
from webapp.runs.models import Run

MEBIBYTE = 2**20


@pytest.fixture
def disk(crew: Crew, tmp_path: Path) -> Iterator[Path]:
    """48 MiB for the folders of trials and for all that a worker keeps."""
    with small_disk(tmp_path / "disk", 48 * MEBIBYTE) as made:
        made.chmod(0o711)
        (made / "trials").mkdir()
        yield made
        crew.dismiss()


def hire(crew: Crew, disk: Path) -> None:
    room = {"TRIAL_ROOM_BYTES": str(8 * MEBIBYTE), "TRIAL_DISK_BYTES": str(2**30)}
    crew.hire(TMPDIR=str(disk / "trials"), LAB_VAR=str(disk / "var"), **room)


def test_a_worker_without_room_claims_nothing_and_its_host_says_why(crew: Crew, disk: Path) -> None:
    runs = queue_runs(project(), "sleep 0.1", "sleep 0.1")
    with full(disk):
        hire(crew, disk)
        until(lambda: Host.objects.exclude(trouble="").exists(), 60, "the host tells its trouble")
        assert Host.objects.get().trouble == "the disk of the worker's files is full (0 MiB free)"
        assert set(Run.objects.values_list("state", "attempt")) == {("queued", 0)}
    until(lambda: all_ended(runs), 60, "the runs are carried out once there is room")
    assert set(Run.objects.values_list("state", "attempt")) == {("succeeded", 1)}


def test_a_run_that_the_full_disk_ended_is_tried_again_and_one_that_filled_it_is_not(
    crew: Crew, disk: Path
) -> None:
    hire(crew, disk)
    (innocent,) = queue_runs(project(), "write 20")
    until(lambda: Run.objects.filter(progress_step="half way").exists(), 60, "the run is at work")
    with full(disk):
        until(lambda: Run.objects.filter(infrastructure_losses=1).exists(), 60, "it is put back")
        innocent.refresh_from_db()
        assert (innocent.state, innocent.crashes) == ("queued", 0)
        assert innocent.progress_step.startswith("tried again: the disk of trials is full (0 MiB free)")
    until(lambda: all_ended([innocent]), 60, "it ends once there is room")
    (greedy,) = queue_runs(innocent.project, "write 100")
    until(lambda: all_ended([greedy]), 60, "the greedy run ended")
    states = {run.pk: (run.state, run.infrastructure_losses) for run in Run.objects.all()}
    assert states == {innocent.pk: ("succeeded", 1), greedy.pk: ("failed", 0)}
    assert "No space left on device" in Run.objects.get(pk=greedy.pk).reason
