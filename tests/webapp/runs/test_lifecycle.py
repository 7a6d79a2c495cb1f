"""A run's life in the database: who may claim it, whose writes count, what waits and what is given back."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from django.utils import timezone

from experiments.core.spec import Outcome
from tests.workers.crew import project, queue_runs
from webapp.accounts.models import User
from webapp.hosts.models import Host
from webapp.hosts.services import register
from webapp.runs import lifecycle, queue, turns
from webapp.runs.lifecycle import Claim, Diagnosis, Ending
from webapp.runs.models import Run, RunDocument, RunMetric
from webapp.runs.services import cancel

pytestmark = pytest.mark.django_db


@pytest.fixture
def host() -> Host:
    return register("one", {"device_kinds": ["cpu"], "sandbox_tier": "limits"})


def claimed(host: Host) -> Claim:
    claim = lifecycle.claim(host, ["cpu"], "limits")
    assert claim is not None
    return claim


def answer(value: float) -> Ending:
    metrics = {"step_time": {"value": value, "unit": "s", "lower_is_better": True}}
    outcome = Outcome({}, "1" * 64, "ok", None, metrics, {}, {}, [], {})
    return Ending(Run.State.SUCCEEDED, outcome=outcome)


def expire(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))


def test_the_late_write_of_an_old_attempt_changes_nothing(host: Host) -> None:
    (run,) = queue_runs(project(), "")
    old = claimed(host)
    expire(run)
    assert lifecycle.reap() == 1
    new = claimed(host)
    assert (old.attempt, new.attempt) == (1, 2)
    assert lifecycle.renew(old, (0.9, "late")) is False
    assert lifecycle.finish(old, answer(666.0)) is False
    assert lifecycle.record_crash(old, "late", Diagnosis(), None) is False
    assert lifecycle.release(old, lost=True) is False
    assert lifecycle.finish(new, answer(1.0)) is True
    assert lifecycle.finish(new, answer(2.0)) is False
    assert [metric.value for metric in RunMetric.objects.all()] == [1.0]
    assert RunDocument.objects.count() == 1
    run.refresh_from_db()
    assert (run.state, run.infrastructure_losses, run.crashes, run.progress) == ("succeeded", 1, 0, 1.0)


def test_results_and_state_are_written_together_or_not_at_all(host: Host) -> None:
    (run,) = queue_runs(project(), "")
    claim = claimed(host)
    RunDocument.objects.create(run=run, outcome={})
    with pytest.raises(Exception, match="duplicate key"):
        lifecycle.finish(claim, answer(1.0))


def test_priority_first_then_age_and_only_devices_that_the_host_has(host: Host) -> None:
    first, second, urgent, on_gpu = queue_runs(project(), *[""] * 4)
    Run.objects.filter(pk=urgent.pk).update(priority=5)
    Run.objects.filter(pk=on_gpu.pk).update(needs="cuda", priority=9)
    assert [claimed(host).run.pk for _ in range(3)] == [urgent.pk, first.pk, second.pk]
    assert lifecycle.claim(host, ["cpu"], "limits") is None
    taken = lifecycle.claim(host, ["cpu", "cuda"], "limits")
    assert taken is not None and taken.run.pk == on_gpu.pk


def test_a_follower_waits_and_ends_with_the_reason_of_what_it_waited_for(host: Host) -> None:
    capture, follower, last = queue_runs(project(), *[""] * 3)
    Run.objects.filter(pk=follower.pk).update(after=capture)
    Run.objects.filter(pk=last.pk).update(after=follower)
    claim = claimed(host)
    assert lifecycle.claim(host, ["cpu"], "limits") is None
    lifecycle.finish(claim, Ending(Run.State.FAILED, "unknown operator"))
    follower.refresh_from_db()
    last.refresh_from_db()
    assert follower.state == last.state == "failed"
    assert last.reason == "what it needs was not made (failed): unknown operator"


def test_a_run_that_began_to_wait_too_late_is_found_by_the_reaper(host: Host) -> None:
    capture, late = queue_runs(project(), *[""] * 2)
    lifecycle.finish(claimed(host), Ending(Run.State.FAILED, "broken"))
    Run.objects.filter(pk=late.pk).update(after=capture)
    lifecycle.reap()
    late.refresh_from_db()
    assert late.state == "failed"


def test_a_clock_that_was_set_back_keeps_no_run_waiting_for_hours(host: Host, settings) -> None:  # type: ignore[no-untyped-def]
    """Its lease and its pause would end hours from now: they last as long as any from then on."""
    settings.RUN_LEASE_SECONDS = 0.3
    taken, postponed = queue_runs(project(), "", "")
    claimed(host)
    assert lifecycle.postpone(claimed(host), "no network")
    ahead = timezone.now() + timedelta(hours=5)
    Run.objects.filter(pk=taken.pk).update(lease_until=ahead)
    Run.objects.filter(pk=postponed.pk).update(not_before=ahead)
    assert lifecycle.reap() == 0
    taken.refresh_from_db()
    postponed.refresh_from_db()
    assert taken.lease_until is not None and taken.lease_until < ahead
    assert postponed.not_before is not None
    assert postponed.not_before - timezone.now() <= timedelta(seconds=lifecycle.LONGEST_PAUSE)
    time.sleep(0.35)
    assert lifecycle.reap() == 1
    taken.refresh_from_db()
    assert (taken.state, taken.infrastructure_losses) == ("queued", 1)


def test_three_crashes_fail_a_run_but_losses_do_not_count(host: Host) -> None:
    (run,) = queue_runs(project(), "")
    for _ in range(5):
        lifecycle.release(claimed(host), lost=True)
    for _ in range(2):
        lifecycle.record_crash(claimed(host), "crashed with SIGSEGV", Diagnosis(signal="SIGSEGV"), None)
        run.refresh_from_db()
        assert run.state == "queued"
    lifecycle.record_crash(
        claimed(host), "crashed with SIGSEGV", Diagnosis(None, "SIGSEGV", 7, "last words"), None
    )
    run.refresh_from_db()
    assert (run.state, run.crashes, run.infrastructure_losses) == ("failed", 3, 5)
    assert (run.reason, run.signal) == ("crashed with SIGSEGV, 3 times", "SIGSEGV")
    assert (run.peak_rss_bytes, run.log_tail) == (7, "last words")


def test_cancelling_queued_at_once_running_on_request_and_orphaned_by_the_reaper(host: Host) -> None:
    first, second = queue_runs(project(), "", "")
    claim = claimed(host)
    cancel(first)
    cancel(second)
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.state, second.state) == ("running", "cancelled")
    assert lifecycle.is_cancelled(claim)
    expire(first)
    lifecycle.reap()
    first.refresh_from_db()
    assert first.state == "cancelled"


def test_a_submission_does_not_need_redis(
    settings, django_capture_on_commit_callbacks, monkeypatch: pytest.MonkeyPatch
) -> None:  # type: ignore[no-untyped-def]
    settings.CELERY_BROKER_URL = "redis://127.0.0.1:1/0"
    queue.client.cache_clear()
    try:
        with django_capture_on_commit_callbacks(execute=True) as sent:
            queue.wake()
    finally:
        queue.client.cache_clear()
    assert len(sent) == 1


def test_every_task_that_is_sent_is_registered() -> None:
    from workers.app import TASKS, app

    app.loader.import_task_module(TASKS)
    assert {name for name, _ in queue.PERIODIC} | {queue.WAKE} <= set(app.tasks)


def test_an_end_without_an_answer_has_pytorchs_status_where_a_model_was_compiled(host: Host) -> None:
    """One that took too long, one that crashed thrice, one whose outcome tells it, and a memory run."""
    compiled = {"family": "compilation", "mode": "measured"}
    late, crashed, told, memory = queue_runs(project(), "", "", "", "")
    for run in (late, crashed, told):
        Run.objects.filter(pk=run.pk).update(**compiled)
    timeout = Ending(Run.State.FAILED, "took longer than 5 s", dashboard_status="timeout")
    lifecycle.finish(claimed(host), timeout)
    for _ in range(3):
        lifecycle.record_crash(claimed(host), "crashed with SIGSEGV", Diagnosis(), None)
    right = answer(1.0)
    assert right.outcome is not None
    right.outcome.provenance["compilation"] = {"dashboard_status": "pass"}
    lifecycle.finish(claimed(host), right)
    lifecycle.finish(claimed(host), timeout)
    found = [Run.objects.get(pk=run.pk).dashboard_status for run in (late, crashed, told, memory)]
    assert found == ["timeout", "infra_error", "pass", ""]


def test_users_take_turns_and_searches_wait_for_what_decides_at_once(host: Host) -> None:
    """Ada's hundred runs delay Max's one by one; her search waits for as many quick ones as it costs."""
    crew = project()
    ada, max_ = (User.objects.create(username=name) for name in ("ada", "max"))

    def asked(owner: User, policy: str, count: int, kind: str = "policy") -> list[Run]:
        runs = [
            Run(project=crew, owner=owner, family="memory", policy=policy, kind=kind) for _ in range(count)
        ]
        turns.enqueue(runs)
        return runs

    search = asked(ada, "autotm", 1)
    many = asked(ada, "baseline", 120)
    for run in many[:2]:
        assert claimed(host).run == run
    late = asked(max_, "baseline", 2)
    reading = asked(max_, "", 1, "inspect")
    order = [claimed(host).run for _ in range(6)]
    assert order == [*reading, many[2], late[0], many[3], late[1], many[4]]
    rest = [claimed(host).run for _ in range(116)]
    assert 80 < rest.index(search[0]) < 110


def test_a_run_that_no_host_can_take_gives_nobody_an_early_turn(host: Host) -> None:
    crew = project()
    ada, max_ = (User.objects.create(username=name) for name in ("ada", "max"))
    turns.enqueue([Run(project=crew, owner=max_, needs="cuda", policy="baseline", family="memory")])
    turns.enqueue([Run(project=crew, owner=ada) for _ in range(6)])
    for _ in range(4):
        claimed(host)
    late = [Run(project=crew, owner=max_) for _ in range(2)]
    turns.enqueue(late)
    assert late[0].turn >= 5
