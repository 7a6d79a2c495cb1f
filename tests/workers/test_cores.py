"""A run that is measured on the processor has its host's cores for itself; the others pause and go on."""

from __future__ import annotations

import psutil
from django.db import transaction

from tests.workers.crew import Crew, project, queue_runs, until
from webapp.accounts.models import Project
from webapp.runs.models import Run, RunDocument
from webapp.runs.services import cancel
from workers.process_tree import descendants


def state_of(run: Run) -> str:
    run.refresh_from_db()
    return run.state


def held(crew: Crew) -> bool:
    """Whether the kernel has stopped processes of one of the trials."""
    below = {pid for worker in crew.workers for pid in descendants(worker.pid)}
    return any(
        one.pid in below and one.info["status"] == psutil.STATUS_STOPPED
        for one in psutil.process_iter(["status"])
    )


@transaction.atomic
def queue_measured(project: Project, behavior: str) -> Run:
    (run,) = queue_runs(project, behavior)
    Run.objects.filter(pk=run.pk).update(mode="measured", needs="cpu")
    return run


def test_a_measured_run_has_the_cores_for_itself_and_says_who_paused(crew: Crew) -> None:
    simulated, doomed = queue_runs(project(), "work 2", "work 300")
    crew.hire(RUN_BEAT_SECONDS="0.1")
    until(lambda: {state_of(simulated), state_of(doomed)} == {"running"}, 60, "both are at work")
    measured = queue_measured(simulated.project, "sleep 2")
    cancel(Run.objects.get(pk=doomed.pk))
    until(lambda: state_of(measured) == "running", 60, "the measured run has a slot")
    until(lambda: held(crew), 10, "the simulated one is held")
    (waiting,) = queue_runs(simulated.project, "sleep 0")
    until(lambda: state_of(simulated) == "running" and "paused" in simulated.progress_step, 10, "it says so")
    assert state_of(waiting) == "queued"
    until(lambda: state_of(waiting) == "succeeded", 60, "all have ended")
    until(lambda: state_of(simulated) == "succeeded", 60, "the held one too")
    assert state_of(measured) == "succeeded"
    assert simulated.finished_at > measured.finished_at
    told = RunDocument.objects.get(run=measured).outcome["provenance"]
    assert told["concurrent"] == ["fifo (paused)"]
    assert told["load_before"] >= 0
    assert "concurrent" not in RunDocument.objects.get(run=simulated).outcome["provenance"]


def test_a_paused_run_can_be_cancelled_and_its_time_stands_still(crew: Crew) -> None:
    (simulated,) = queue_runs(project(), "work 300")
    crew.hire(RUN_BEAT_SECONDS="0.1")
    until(lambda: state_of(simulated) == "running", 60, "it is at work")
    measured = queue_measured(simulated.project, "sleep 3")
    until(lambda: held(crew), 20, "it is held")
    cancel(Run.objects.get(pk=simulated.pk))
    until(lambda: state_of(simulated) == "cancelled", 10, "it ends while it is held")
    assert state_of(measured) == "running"
    until(lambda: state_of(measured) == "succeeded", 60, "nobody else was disturbed")
