"""Faults, aimed: workers and trials are killed while their run is in state running. Nothing is lost, nothing
doubled.
"""

from __future__ import annotations

import io
import os
import random
import signal
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import redis
from django.test import override_settings

from tests.figures import tell
from tests.workers.crew import Crew, all_ended, command_line, project, queue_runs, told_of, until
from webapp.artifacts.models import Artifact
from webapp.artifacts.services import store_bytes
from webapp.runs import lifecycle, queue
from webapp.runs.models import Run, RunDocument, RunMetric
from workers.embedded import Valkey
from workers.process_tree import descendants, send
from workers.services import free_port
from workers.services import running as running_server

#: Of workers and trials. The suite kills fewer.
KILLS = int(os.environ.get("LAB_KILLS", "16"))
#: Long enough to be hit, short enough to end soon when left alone.
WORK = "sleep 0.3"


def running() -> int:
    return Run.objects.filter(state=Run.State.RUNNING).count()


def kill_something(crew: Crew, dice: random.Random) -> str:
    """Kill a trial that is carrying out a run, or a worker that has one; ``""`` where none has."""
    at_work = {worker: trials_below(worker.pid) for worker in crew.workers}
    busy = [worker for worker, trials in at_work.items() if trials]
    if not busy or not running():
        return ""
    victim = dice.choice(busy)
    if dice.random() < 0.5:
        crew.kill(victim)
        crew.fork()
        return "worker"
    send(at_work[victim][-1], signal.SIGKILL)
    return "trial"


def trials_below(pid: int) -> list[int]:
    """The Python processes of trials below a worker, not what is wrapped around them."""
    return [below for below in descendants(pid) if "trials.py run" in " ".join(command_line(below))[:200]]


def processes_with(mark: str) -> list[int]:
    return [pid for pid in psutil.pids() if mark in told_of(pid)]


def nothing_is_left(crew: Crew) -> None:
    """No trial, no guard, no bubblewrap: first below the workers, then, the workers gone too, on the whole
    machine.
    """
    until(lambda: not crew.at_work(), 60, "the workers have nothing below them")
    crew.dismiss()
    until(lambda: not crew.left_behind(), 60, "nothing of the crew is left")


@pytest.mark.slow
def test_kills_lose_no_run_and_double_none(crew: Crew) -> None:
    dice = random.Random(7)
    runs = queue_runs(project(), *[WORK] * (KILLS + 10))
    crew.fork(2)
    killed: list[str] = []

    def keep_killing() -> bool:
        lifecycle.reap()
        if len(killed) < KILLS and (hit := kill_something(crew, dice)):
            killed.append(hit)
        if len(killed) < KILLS and all_ended(runs):
            runs.extend(queue_runs(runs[0].project, *[WORK] * 10))
        return len(killed) == KILLS and all_ended(runs)

    until(keep_killing, 500, f"{KILLS} kills and every run ended")
    ended = list(Run.objects.filter(pk__in=[run.pk for run in runs]))
    succeeded = [run for run in ended if run.state == Run.State.SUCCEEDED]
    failed = [run for run in ended if run.state == Run.State.FAILED]
    assert len(succeeded) + len(failed) == len(runs)
    # A run fails here only by being killed itself as often as a run may crash.
    assert [run.reason for run in failed] == ["crashed with SIGKILL, 3 times"] * len(failed)
    assert {killed.count("worker"), killed.count("trial")} != {0, KILLS}
    assert RunDocument.objects.count() == RunMetric.objects.count() == len(succeeded)
    assert sum(run.attempt for run in ended) == len(succeeded) + sum(
        run.crashes + run.infrastructure_losses for run in ended
    )
    nothing_is_left(crew)
    counts = {who: killed.count(who) for who in sorted(set(killed))}
    tell(kills=counts, runs=len(runs), succeeded=len(succeeded), failed=len(failed))


@pytest.mark.slow
def test_files_that_are_away_for_a_while_end_no_run(crew: Crew, tmp_path: Path) -> None:
    """20 s with ``LAB_STORAGE_AWAY=20``. Runs that waited for a file succeed then, and so do those behind
    them.
    """
    files = tmp_path / "var" / "files"
    with override_settings(MEDIA_ROOT=files):
        blobs = [store_bytes(io.BytesIO(f"trace {number}".encode())) for number in range(8)]
    runs = queue_runs(project(), *[WORK] * 8)
    for run, blob in zip(runs, blobs, strict=True):
        run.artifact = Artifact.objects.create(
            project=run.project, name=f"{blob.sha256}.csv", blob=blob, state="ready", kind="jobs"
        )
        run.save()
    follower = queue_runs(runs[0].project, WORK)[0]
    Run.objects.filter(pk=follower.pk).update(after=runs[0])
    files.rename(tmp_path / "away")
    crew.fork()
    began = time.monotonic()
    until(lambda: postponed(runs) == len(runs), 60, "each was tried and postponed")
    time.sleep(max(0.0, float(os.environ.get("LAB_STORAGE_AWAY", "0")) - (time.monotonic() - began)))
    assert {run.state for run in Run.objects.all()} <= {"queued", "running"}
    away = time.monotonic() - began
    (tmp_path / "away").rename(files)
    until(lambda: all_ended([*runs, follower]), 120, "all ended")
    tell(**{"seconds away": round(away), "runs": 9, "postponed": postponed(runs), "ended": states()})
    assert set(Run.objects.values_list("state", "crashes")) == {("succeeded", 0)}
    assert set(Artifact.objects.values_list("state", flat=True)) == {"ready"}


def states() -> dict[str, int]:
    return Counter(Run.objects.values_list("state", flat=True))


def postponed(runs: list[Run]) -> int:
    return Run.objects.filter(pk__in=[run.pk for run in runs], infrastructure_losses__gt=0).count()


def test_each_misbehavior_ends_failed_with_its_cause_and_others_finish(crew: Crew) -> None:
    mark = uuid.uuid4().hex
    segfault, greedy, deaf, good = queue_runs(project(), "segfault", "allocate", f"fork {mark}", "sleep 0.1")
    crew.hire(TRIAL_SECONDS="10")
    until(lambda: bool(processes_with(mark)), 60, "the deaf double fork runs")
    assert crew.left_behind()
    until(lambda: all_ended([segfault, greedy, deaf, good]), 120, "all ended")
    for run in (segfault, greedy, deaf, good):
        run.refresh_from_db()
    assert (segfault.state, segfault.signal, segfault.crashes) == ("failed", "SIGSEGV", 3)
    assert segfault.reason == "crashed with SIGSEGV, 3 times"
    assert (greedy.state, greedy.reason) == ("failed", "took more than 0.50 GiB of memory")
    assert greedy.peak_rss_bytes is not None and greedy.peak_rss_bytes > 2**29
    assert (deaf.state, deaf.reason, deaf.crashes) == ("failed", "took longer than 10 s", 0)
    assert (good.state, good.reason) == ("succeeded", "")
    assert processes_with(mark) == []
    nothing_is_left(crew)


def test_a_deaf_double_fork_is_ended_by_cancelling_too(crew: Crew) -> None:
    mark = uuid.uuid4().hex
    deaf, good = queue_runs(project(), f"fork {mark}", "sleep 0.1")
    crew.hire()
    until(lambda: bool(processes_with(mark)), 60, "the deaf double fork runs")
    Run.objects.filter(pk=deaf.pk).update(cancel_requested=True)
    until(lambda: all_ended([deaf, good]), 60, "both ended")
    deaf.refresh_from_db()
    good.refresh_from_db()
    assert (deaf.state, deaf.reason, good.state) == ("cancelled", "cancelled", "succeeded")
    assert processes_with(mark) == []
    nothing_is_left(crew)


def test_a_killed_worker_takes_its_trial_along(crew: Crew) -> None:
    mark = uuid.uuid4().hex
    (run,) = queue_runs(project(), f"fork {mark}")
    crew.hire()
    until(lambda: bool(processes_with(mark)), 60, "the trial runs")
    crew.kill(crew.workers[0])
    until(lambda: not processes_with(mark), 60, "the trial is gone")
    until(lambda: lifecycle.reap() == 1, 60, "the lease expired")
    run.refresh_from_db()
    assert (run.state, run.infrastructure_losses, run.crashes) == ("queued", 1, 0)


def test_redis_flushed_and_killed_while_twenty_wait_loses_none(crew: Crew, tmp_path: Path) -> None:
    """Postgres alone remembers: with the messages flushed and their server killed, the idle look
    finds all.
    """
    home = tmp_path / "valkey"
    server = Valkey(home, free_port())
    with running_server(server, tmp_path / "valkey.log") as process, messages_go_to(server.url):
        runs = queue_runs(project(), *["sleep 0.01"] * 20)
        for _ in runs:
            queue.send(queue.WAKE)
        with redis.Redis.from_url(server.url) as connection:
            connection.flushall()
        process.kill()
        process.wait()
        queue.send(queue.WAKE)
        crew.hire()
        until(lambda: all_ended(runs), 60, "all twenty ended")
    assert {run.state for run in Run.objects.all()} == {"succeeded"}
    assert RunDocument.objects.count() == 20


@contextmanager
def messages_go_to(url: str) -> Iterator[None]:
    queue.client.cache_clear()
    with override_settings(CELERY_BROKER_URL=url):
        yield
    queue.client.cache_clear()
