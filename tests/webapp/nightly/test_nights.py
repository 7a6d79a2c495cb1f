"""Nights: each slot runs once whatever the messages do, and the page says what became of it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import PurePath
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django_celery_beat.models import PeriodicTask
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiments.core.errors import BadInput
from experiments.core.suites import Suite, is_users, load_suite, suite_names
from tests.webapp import cast
from tests.webapp.cast import Place
from webapp.accounts.models import Role
from webapp.artifacts.models import Artifact
from webapp.nightly import charts, history, services, steps, suites
from webapp.nightly.models import Night, Schedule
from webapp.runs import queue
from webapp.runs.models import Run, RunDocument, RunMetric
from webapp.runs.node_lists import named_list

SLOT = datetime(2026, 3, 2, 2, 0, tzinfo=UTC)
SUITE = "memory-gpt2"


@pytest.fixture
def ada(db: None) -> Place:
    return cast.place("ada")


@pytest.fixture
def nightly(ada: Place) -> Schedule:
    """A suite at 02:00, made long before the nights of these tests."""
    made = services.create_schedule(ada.project, ada.user, SUITE, 2, 0)
    Schedule.objects.update(created_at=SLOT - timedelta(days=30))
    made.refresh_from_db()
    return made


@pytest.fixture
def client(client: Client, ada: Place) -> Client:
    client.force_login(ada.user)
    return client


def end(night: Night, step_time: float, revision: str) -> None:
    """As a worker would leave the runs of a night: one figure each, at one revision of the code."""
    assert night.experiment is not None
    for run in night.experiment.runs.all():
        RunMetric.objects.create(run=run, name="step_time", value=step_time)
        RunDocument.objects.create(run=run, outcome={"provenance": {"revision": revision}})
    night.experiment.runs.update(state=Run.State.SUCCEEDED, outcome_status="ok")


def policy_runs() -> int:
    return Run.objects.filter(kind=Run.Kind.POLICY).count()


def test_a_schedule_that_is_there_already_is_opened_and_another_time_is_said(
    ada: Place, client: Client
) -> None:
    client.force_login(ada.user, backend="django.contrib.auth.backends.ModelBackend")
    for at in ("03:30", "03:30", "04:00"):
        answer = client.post(ada.url("nightly/"), {"suite": SUITE, "at": at})
    first, other = ada.project.schedules.order_by("pk")
    assert answer.headers["Location"] == ada.url(f"nightly/{other.pk}/")
    page = client.get(answer.headers["Location"]).content.decode()
    assert f"{SUITE} runs at 03:30 UTC already" in page
    assert f'runs at <a href="{ada.url(f"nightly/{first.pk}/")}">03:30 UTC</a> too' in page


@pytest.mark.django_db
def test_a_viewer_sees_the_form_disabled_with_the_reason(client: Client) -> None:
    backend = "django.contrib.auth.backends.ModelBackend"
    made, other = cast.place("vi", Role.VIEWER), cast.place("mo")
    client.force_login(made.user, backend=backend)
    page = client.get(made.url("nightly/")).content.decode()
    assert '<fieldset class="stack tight" disabled aria-describedby="why-not">' in page
    assert "Your role in this team is viewer: you can look, not schedule." in page
    assert client.post(made.url("nightly/"), {"suite": SUITE, "at": "03:30"}).status_code == 403
    client.force_login(other.user, backend=backend)
    assert "why-not" not in client.get(other.url("nightly/")).content.decode()


def test_a_doubled_message_runs_the_suite_once(nightly: Schedule) -> None:
    first = services.tick(nightly, SLOT)
    again = services.tick(nightly, SLOT)
    assert first == again
    assert policy_runs() == len(load_suite(SUITE).runs)


@pytest.mark.django_db(transaction=True)
def test_two_beats_at_the_same_moment_run_the_suite_once() -> None:
    ada = cast.place("ada")
    made = services.create_schedule(ada.project, ada.user, SUITE, 2, 0)
    together = threading.Barrier(2)

    def beat() -> int:
        together.wait()
        try:
            return services.tick(Schedule.objects.get(pk=made.pk), SLOT).pk
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as beats:
        nights = [future.result() for future in [beats.submit(beat) for _ in range(2)]]
    assert nights[0] == nights[1]
    assert policy_runs() == len(load_suite(SUITE).runs)


def test_the_slot_is_the_last_time_of_day_that_has_passed(nightly: Schedule) -> None:
    assert services.last_slot(nightly, SLOT) == SLOT
    assert services.last_slot(nightly, SLOT + timedelta(hours=23)) == SLOT
    assert services.last_slot(nightly, SLOT - timedelta(seconds=1)) == SLOT - timedelta(days=1)


def test_a_late_message_is_made_up_for_but_not_into_the_day(nightly: Schedule) -> None:
    services.tick_due(SLOT + timedelta(hours=5))
    assert [night.slot for night in Night.objects.all()] == [SLOT]
    services.tick_due(SLOT + timedelta(days=1, hours=7))
    assert Night.objects.count() == 1


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.integers(0, 95), st.integers(-12 * 60, 12 * 60), max_size=5))
def test_whatever_the_clock_does_no_slot_runs_twice_and_none_that_it_passed_is_missed(
    nightly: Schedule, jumps: dict[int, int]
) -> None:
    """Beat looks every hour of four days; ``jumps`` are minutes by which the clock is set at some of them.
    The days are those on which Berlin and New York change their time.
    """
    for day in (datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 10, 31, 12, tzinfo=UTC)):
        Night.objects.all().delete()
        now, due = day, set()
        for look in range(96):
            now += timedelta(minutes=60 + jumps.get(look, 0))
            services.tick_due(now)
            slot = services.last_slot(nightly, now)
            due |= {slot} if now - slot < services.GRACE else set()
        assert sorted(Night.objects.values_list("slot", flat=True)) == sorted(due)
        assert {slot.hour for slot in due} <= {2}


def test_a_new_schedule_makes_up_for_no_slot_before_it(nightly: Schedule) -> None:
    Schedule.objects.update(created_at=SLOT + timedelta(minutes=1))
    services.tick_due(SLOT + timedelta(minutes=5))
    assert not Night.objects.exists()


def test_a_paused_schedule_and_a_trashed_project_are_left_alone(nightly: Schedule) -> None:
    services.set_enabled(nightly, False)
    services.tick_due(SLOT)
    services.set_enabled(nightly, True)
    nightly.project.trashed_at = SLOT
    nightly.project.save()
    services.tick_due(SLOT)
    assert not Night.objects.exists()


def test_a_night_is_skipped_while_the_one_before_still_runs(nightly: Schedule) -> None:
    services.tick(nightly, SLOT)
    second = services.tick(nightly, SLOT + timedelta(days=1))
    assert second.skipped == "the night of 02 Mar 2026 02:00 UTC has not ended"
    assert second.experiment is None


def test_a_suite_that_cannot_be_submitted_is_skipped_with_the_reason(nightly: Schedule) -> None:
    Schedule.objects.update(suite="gone")
    nightly.refresh_from_db()
    night = services.tick(nightly, SLOT)
    assert "unknown suite 'gone'" in night.skipped
    assert policy_runs() == 0


def test_beat_is_told_the_time_and_the_one_task_name(nightly: Schedule) -> None:
    task = PeriodicTask.objects.get(name=f"night {nightly.pk}")
    assert (task.task, task.args, task.crontab.hour, str(task.crontab.timezone)) == (
        queue.NIGHT,
        "[]",
        "2",
        "UTC",
    )
    services.remove(nightly)
    assert not PeriodicTask.objects.filter(task=queue.NIGHT).exists()


def test_the_worker_registers_the_task_that_beat_sends() -> None:
    from workers.app import TASKS, app

    app.loader.import_task_module(TASKS)
    assert queue.NIGHT in app.tasks


def test_history_has_the_revision_of_each_point(nightly: Schedule) -> None:
    for day, (seconds, revision) in enumerate(((1.0, "aaa"), (1.25, "bbb"))):
        end(services.tick(nightly, SLOT + timedelta(days=day)), seconds, revision)
    found = history.history(nightly)
    series = charts.chart(found, "step_time", nightly, ())["series"][: len(load_suite(SUITE).runs)]
    titles = [title for title, _ in load_suite(SUITE).runs]
    assert sorted(line["name"] for line in series) == sorted(titles)
    assert series[0]["y"] == [1.0, 1.25]
    assert series[0]["text"] == ["revision aaa", "revision bbb"]
    alert = steps.alerts(found)[0]
    assert (alert.before, alert.after, alert.fraction, alert.better) == (1.0, 1.25, 0.25, False)
    assert alert.suspects == "aaa..bbb"


def test_the_calendar_shows_skipped_failed_and_missed_nights(
    client: Client, ada: Place, nightly: Schedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = SLOT + timedelta(days=4, hours=3)
    monkeypatch.setattr("django.utils.timezone.now", lambda: now)
    Schedule.objects.update(created_at=SLOT - timedelta(hours=1))
    first = services.tick(nightly, SLOT)
    services.tick(nightly, SLOT + timedelta(days=1))
    assert first.experiment is not None
    first.experiment.runs.update(state=Run.State.FAILED)
    end(services.tick(nightly, SLOT + timedelta(days=2)), 1.0, "ccc")
    page = client.get(ada.url(f"nightly/{nightly.pk}/")).content.decode()
    calendar = page.split('class="calendar"')[1].split("</table>")[0]
    for state, count in (("failed", 1), ("skipped", 1), ("succeeded", 1), ("missed", 2)):
        assert calendar.count(f'"night {state}"') == count, state


def test_running_now_twice_in_a_minute_is_once(client: Client, ada: Place, nightly: Schedule) -> None:
    url = ada.url(f"nightly/{nightly.pk}/run")
    first, second = (client.post(url).headers["Location"] for _ in range(2))
    assert first == second
    assert "/experiments/" in first
    assert policy_runs() == len(load_suite(SUITE).runs)


def test_a_schedule_is_made_paused_and_removed_on_its_page(client: Client, ada: Place) -> None:
    made = client.post(ada.url("nightly/"), {"suite": SUITE, "at": "03:30"})
    found = Schedule.objects.get()
    assert made.headers["Location"].endswith(f"/nightly/{found.pk}/")
    assert (found.hour, found.minute) == (3, 30)
    for word, state in (("pause", False), ("resume", True)):
        client.post(ada.url(f"nightly/{found.pk}/{word}"))
        found.refresh_from_db()
        assert (found.enabled, found.task is not None and found.task.enabled) == (state, state)
    client.post(ada.url(f"nightly/{found.pk}/remove"))
    assert not Schedule.objects.exists()


@pytest.mark.parametrize("change", [{"suite": "../../etc"}, {"at": "25:00"}, {"at": ""}, {"suite": ""}])
def test_a_wrong_schedule_is_refused_at_its_field(client: Client, ada: Place, change: dict[str, str]) -> None:
    answer = client.post(ada.url("nightly/"), {"suite": SUITE, "at": "03:30", **change})
    assert answer.status_code == 422
    assert not Schedule.objects.exists()


def test_another_teams_schedule_does_not_exist(client: Client, nightly: Schedule) -> None:
    bob = cast.place("bob")
    theirs = services.create_schedule(bob.project, bob.user, SUITE, 2, 0)
    place = f"/t/ada/lab/nightly/{theirs.pk}/"
    assert client.get(place).status_code == 404
    for word in ("run", "pause", "resume", "remove"):
        assert client.post(f"{place}{word}").status_code == 404
    assert Schedule.objects.filter(pk=theirs.pk, enabled=True).exists()


@pytest.mark.parametrize("name", suite_names())
def test_every_suite_can_be_submitted_by_a_project(
    ada: Place, name: str, settings: Any, tmp_path: Any
) -> None:
    settings.MEDIA_ROOT = tmp_path
    suite: Suite = load_suite(name)
    brought = {row["workload"]["source"] for _, row in suite.runs}
    lists = {str(named_list(row["hardware"])) for _, row in suite.runs} - {"None"}
    if lists:
        with pytest.raises(BadInput, match="this project has no artifact"):
            suites.trials_of(suite, ada.project, ada.user)
    for nodes in filter(is_users, lists):
        cast.ready(ada.project, kind="nodes", name=PurePath(nodes).name, zoo="", source="upload")
    kind = {"cluster": "jobs", "serving": "requests"}.get(name.partition("-")[0], "step")
    for source in filter(is_users, brought):  # what the user has to bring
        cast.ready(ada.project, kind=kind, name=PurePath(source).name, zoo="", source="upload")
    sides = {row["workload"].get("options", {}).get("extra") or "" for _, row in suite.runs}
    for side in filter(is_users, sides):
        made = cast.ready(ada.project, kind="", name=f"{PurePath(side).name}.zip", zoo="", source="upload")
        Artifact.objects.filter(pk=made.pk).update(state=Artifact.State.REJECTED)
    trials = suites.trials_of(suite, ada.project, ada.user)
    assert [title for title, _ in trials] == [title for title, _ in suite.runs]
    assert len({trial.artifact.pk for _, trial in trials}) == len(brought)
