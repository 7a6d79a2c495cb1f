"""What a killed worker had in hand is taken up by the next one of its host, long before leases end."""

from __future__ import annotations

from tests.workers.crew import STRICKEN, Crew, all_ended, project, queue_runs, until
from webapp.runs.models import Run


def test_the_next_worker_of_a_host_takes_up_what_a_killed_one_had_in_hand(crew: Crew) -> None:
    patient = {"RUN_LEASE_SECONDS": "600"}
    runs = queue_runs(project(), "sleep 2", "sleep 2", "sleep 0.1")
    crew.hire(**patient)
    until(lambda: Run.objects.filter(state=Run.State.RUNNING).count() == 2, 60, "two runs are at work")
    crew.kill(crew.workers[0])
    crew.hire(2, **patient)
    until(lambda: all_ended(runs), 60, "all ended, though the leases of the killed worker last ten minutes")
    ended = Run.objects.filter(pk__in=[run.pk for run in runs])
    assert {run.state for run in ended} == {Run.State.SUCCEEDED}
    assert sorted(run.infrastructure_losses for run in ended) == [0, 1, 1], "those in hand, once each"
    assert max(run.attempt for run in ended) == 2


def test_a_worker_killed_as_soon_as_it_has_claimed_is_seen_to_be_gone(crew: Crew) -> None:
    patient = {"RUN_LEASE_SECONDS": "600"}
    (run,) = queue_runs(project(), "sleep 0.1")
    crew.hire(program=STRICKEN, **patient)
    until(lambda: crew.workers[0].poll() is not None, 60, "it claimed the run and was killed")
    run.refresh_from_db()
    assert (run.state, run.attempt) == (Run.State.RUNNING, 1)
    crew.workers.pop().wait()
    crew.hire(**patient)
    until(lambda: all_ended([run]), 60, "the run ended, though its lease lasts ten minutes")
    run.refresh_from_db()
    assert (run.state, run.attempt, run.infrastructure_losses) == (Run.State.SUCCEEDED, 2, 1)
