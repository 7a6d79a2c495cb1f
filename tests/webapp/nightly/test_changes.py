"""Changes: found once a night has ended, run again where measured, decided by people, told once."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client

from experiments.core.suites import load_suite
from tests.variants import variants
from tests.webapp.browser import browser_page, enter, ink, serious, serving
from tests.webapp.cast import Place, place
from tests.webapp.nightly.test_alerts import SLOT, SUITE, record
from webapp.accounts.audit import entries
from webapp.accounts.models import Membership, Role
from webapp.nightly import changes, channels, services
from webapp.nightly.models import Change, Channel, Message, Night, Schedule
from webapp.runs.models import Run, RunMetric

NOW = SLOT + timedelta(days=9)
State = Change.State


@pytest.fixture
def client(client: Client, ada: Place) -> Client:
    client.force_login(ada.user, backend="django.contrib.auth.backends.ModelBackend")
    return client


def record_step(nightly: Schedule, **columns: Any) -> None:
    """Nine nights, the last two half as slow again."""
    for day in range(9):
        record(nightly, day, 1.0 if day < 7 else 1.5, "aaaaaaa" if day < 7 else "bbbbbbb", **columns)


def test_a_simulated_step_is_open_at_once_and_found_once(nightly: Schedule) -> None:
    record_step(nightly)
    changes.watch(NOW)
    changes.watch(NOW + timedelta(minutes=1))
    found = list(Change.objects.all())
    assert len(found) == len(load_suite(SUITE).runs)
    one = found[0]
    assert (one.state, one.before, one.after, one.better) == (State.OPEN, 1.0, 1.5, False)
    assert (one.slot, one.suspects) == (SLOT + timedelta(days=7), "aaaaaaa..bbbbbbb")
    assert not Night.objects.filter(looked_at=None).exists()


def test_nothing_is_looked_for_while_a_night_runs(nightly: Schedule) -> None:
    record_step(nightly)
    last = Night.objects.first()
    assert last is not None and last.experiment is not None
    Run.objects.filter(pk=last.experiment.runs.values("pk")[:1]).update(state=Run.State.RUNNING)
    changes.watch(NOW)
    assert list(Night.objects.filter(looked_at=None)) == [last]
    assert {one.slot for one in Change.objects.all()} == {SLOT + timedelta(days=7)}  # of the night before


@pytest.mark.parametrize(("again", "state"), [(1.49, State.OPEN), (1.02, State.UNCONFIRMED)])
def test_a_measured_step_is_run_again_before_it_is_told(nightly: Schedule, again: float, state: str) -> None:
    record_step(nightly, mode="measured")
    changes.watch(NOW)
    change = Change.objects.first()
    assert change is not None and change.state == State.CONFIRMING and change.confirmation is not None
    repeats = change.confirmation.runs
    assert repeats.count() == changes.REPEATS
    changes.watch(NOW)
    change.refresh_from_db()
    assert change.state == State.CONFIRMING
    for run in repeats.all():
        RunMetric.objects.create(run=run, name="step_time", value=again)
    repeats.update(state=Run.State.SUCCEEDED, outcome_status="ok")
    changes.watch(NOW)
    change.refresh_from_db()
    assert (change.state, change.again) == (state, again)


def record_nights(nightly: Schedule, first: int, *values: float, mode: str = "measured") -> None:
    for day, value in enumerate(values, first):
        record(nightly, day, value, mode=mode)


def run_again(value: float) -> None:
    """Whatever is being run again takes so many seconds."""
    for change in Change.objects.filter(state=State.CONFIRMING):
        assert change.confirmation is not None
        for run in change.confirmation.runs.all():
            RunMetric.objects.update_or_create(run=run, name="step_time", defaults={"value": value})
        change.confirmation.runs.update(state=Run.State.SUCCEEDED, outcome_status="ok")


def told_of_one(nightly: Schedule) -> list[tuple[str, float, float]]:
    """The changes of one series, oldest first: how they stand, from which level to which."""
    title = nightly.changes.values_list("title", flat=True).first()
    found = nightly.changes.filter(title=title).order_by("slot")
    return list(found.values_list("state", "before", "after"))


@pytest.mark.parametrize("at_once", [False, True])
def test_the_way_back_from_what_was_no_change_is_none(nightly: Schedule, at_once: bool) -> None:
    """Three slow nights that repeats do not show, found before the figure is back or only then."""
    record_nights(nightly, 0, *[1.0] * 7, *[1.5] * 3)
    if not at_once:
        changes.watch(NOW + timedelta(days=1))
        run_again(1.01)
        changes.watch(NOW + timedelta(days=1))
        assert told_of_one(nightly) == [(State.UNCONFIRMED, 1.0, 1.5)]
    record_nights(nightly, 10, *[1.0] * 3)
    changes.watch(NOW + timedelta(days=4))
    if at_once:
        assert told_of_one(nightly) == [(State.CONFIRMING, 1.0, 1.5), (State.CONFIRMING, 1.5, 1.0)]
    run_again(1.0)
    changes.watch(NOW + timedelta(days=4))
    assert {state for state, _, _ in told_of_one(nightly)} == {State.UNCONFIRMED}
    assert len(told_of_one(nightly)) == (2 if at_once else 1)


def test_a_step_after_what_was_no_change_is_one_from_the_level_before_it(nightly: Schedule) -> None:
    record_nights(nightly, 0, *[1.0] * 7, *[1.5] * 3)
    changes.watch(NOW + timedelta(days=1))
    run_again(1.01)
    changes.watch(NOW + timedelta(days=1))
    record_nights(nightly, 10, *[0.8] * 3)
    changes.watch(NOW + timedelta(days=4))
    run_again(0.81)
    changes.watch(NOW + timedelta(days=4))
    assert told_of_one(nightly) == [(State.UNCONFIRMED, 1.0, 1.5), (State.OPEN, 1.0, 0.8)]


def test_a_change_waits_for_the_one_before_it(nightly: Schedule) -> None:
    record_nights(nightly, 0, *[1.0] * 7, *[1.5] * 3, *[1.0] * 3)
    changes.watch(NOW + timedelta(days=4))
    for back in nightly.changes.filter(after=1.0):
        assert back.confirmation is not None
        back.confirmation.runs.update(state=Run.State.SUCCEEDED, outcome_status="ok")
    changes.watch(NOW + timedelta(days=4))
    assert told_of_one(nightly) == [(State.CONFIRMING, 1.0, 1.5), (State.CONFIRMING, 1.5, 1.0)]


def test_the_way_back_from_a_false_alarm_is_no_change(nightly: Schedule, ada: Place) -> None:
    record_nights(nightly, 0, *[1.0] * 7, *[1.5] * 3, mode="simulated")
    changes.look(nightly, NOW)
    for change in Change.objects.all():
        changes.decide(change, ada.user, State.FALSE_ALARM, NOW)
    record_nights(nightly, 10, *[1.0] * 3, mode="simulated")
    changes.look(nightly, NOW + timedelta(days=3))
    assert told_of_one(nightly) == [(State.FALSE_ALARM, 1.0, 1.5)]


def test_a_measured_step_below_one_percent_is_nobodys_morning(nightly: Schedule) -> None:
    for day in range(20):
        record(nightly, day, 1.0 if day < 10 else 1.005, mode="measured")
    changes.watch(NOW)
    assert not Change.objects.exists()


def test_a_step_that_more_nights_place_elsewhere_is_the_same_one(nightly: Schedule) -> None:
    """The night of the step is found to have been as before; the next ones have stepped."""
    for day in range(5):
        record(nightly, day, 1.0 if day < 4 else 1.3)
    changes.look(nightly, NOW)
    first = dict(Change.objects.values_list("pk", "slot"))
    assert set(first.values()) == {SLOT + timedelta(days=4)}
    RunMetric.objects.update(value=1.0)
    record(nightly, 5, 1.3)
    changes.look(nightly, NOW)
    again = dict(Change.objects.values_list("pk", "slot"))
    assert again.keys() == first.keys() and set(again.values()) == {SLOT + timedelta(days=5)}


def test_a_step_that_is_not_there_any_more_has_vanished_and_a_decided_one_stays(nightly: Schedule) -> None:
    record_step(nightly)
    changes.look(nightly, NOW)
    kept, *others = Change.objects.all()
    changes.decide(kept, nightly.created_by, State.FIXED, NOW)  # type: ignore[arg-type]
    RunMetric.objects.all().update(value=1.0)
    changes.look(nightly, NOW)
    states = dict(Change.objects.values_list("pk", "state"))
    assert states[kept.pk] == State.FIXED
    assert {states[one.pk] for one in others} == {State.VANISHED}


def test_old_steps_are_kept_but_nobody_is_sent_word(nightly: Schedule) -> None:
    record_step(nightly)
    changes.look(nightly, SLOT + timedelta(days=30))
    assert set(Change.objects.values_list("silent", flat=True)) == {True}


def test_people_decide_assign_and_say_and_precision_is_of_what_they_decided(
    nightly: Schedule, ada: Place, client: Client
) -> None:
    record_step(nightly)
    changes.look(nightly, NOW)
    first, second, *_ = Change.objects.all()
    page = ada.url(f"nightly/changes/{first.pk}/")
    assert "None was decided yet" in client.get(ada.url("nightly/changes/")).content.decode()
    client.post(page, {"state": "false_alarm", "assignee": ada.user.pk})
    client.post(page, {"text": "the host was <busy>"})
    client.post(ada.url(f"nightly/changes/{second.pk}/"), {"state": "fixed", "assignee": ""})
    first.refresh_from_db()
    assert (first.state, first.assignee, first.decided_by) == ("false_alarm", ada.user, ada.user)
    shown = client.get(page).content.decode()
    assert "the host was &lt;busy&gt;" in shown and "false alarm by ada" in shown.lower()
    listed = client.get(ada.url("nightly/changes/")).content.decode()
    assert "Of 2 that people decided, 1 was a false alarm" in listed
    refused = client.post(page, {"state": "confirming", "assignee": ""})
    assert refused.status_code == 422
    rows = client.get(ada.url("nightly/changes/?export=csv")).content.decode().splitlines()
    assert len(rows) == 1 + Change.objects.count()


def test_a_days_schedule_runs_on_its_days_alone(ada: Place, client: Client) -> None:
    """2 March 2026 is a Monday."""
    client.post(ada.url("nightly/"), {"suite": SUITE, "at": "02:00", "days": ["5", "0"]})
    made = ada.project.schedules.get()
    assert (made.days, made.days_in_words) == ("05", "Mon, Sat")
    assert made.task.crontab.day_of_week == "1,6"
    wednesday = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)
    assert services.last_slot(made, wednesday) == SLOT
    assert services.last_slot(made, SLOT - timedelta(minutes=1)) == SLOT - timedelta(days=2)


def hook(ada: Place, address: str, **more: Any) -> Channel:
    made = Channel.objects.create(
        project=ada.project, name="hook", kind="webhook", address=address, secret="s3cret", **more
    )
    Channel.objects.update(created_at=SLOT)
    return made


def test_a_webhook_is_told_once_a_night_and_can_tell_who_signed(
    nightly: Schedule, ada: Place, ear: Any, settings: Any
) -> None:
    settings.PUBLIC_URL = "https://lab.example.org"
    address, heard, _ = ear
    hook(ada, address)
    record_step(nightly)
    changes.watch(NOW)
    channels.send_due(NOW)
    channels.send_due(NOW + timedelta(minutes=5))
    ((headers, body),) = heard
    signed = headers["X-Lab-Timestamp"].encode() + b"." + body
    wanted = hmac.new(b"s3cret", signed, hashlib.sha256).hexdigest()
    assert headers["X-Lab-Signature"] == f"sha256={wanted}"
    told = json.loads(body)
    assert len(told["changes"]) == Change.objects.count()
    assert told["changes"][0]["url"].startswith("https://lab.example.org/t/ada/")
    assert "for the worse" in told["title"]


def test_quiet_hours_and_running_nights_hold_a_message_back(nightly: Schedule, ada: Place, ear: Any) -> None:
    address, heard, _ = ear
    hook(ada, address, quiet_from=22, quiet_to=7)
    record_step(nightly)
    changes.watch(NOW)
    channels.send_due(NOW.replace(hour=3))
    channels.send_due(NOW.replace(hour=23))
    assert heard == []
    running = services.tick(nightly, NOW.replace(hour=2))
    assert running.experiment is not None
    channels.send_due(NOW.replace(hour=7))
    assert heard == []
    running.experiment.runs.update(state=Run.State.FAILED)
    channels.send_due(NOW.replace(hour=7))
    assert len(heard) == 1


def test_what_was_not_taken_is_sent_again_and_the_page_says_why(
    nightly: Schedule, ada: Place, ear: Any, client: Client
) -> None:
    address, heard, codes = ear
    hook(ada, address)
    record_step(nightly)
    changes.watch(NOW)
    codes.append(500)
    channels.send_due(NOW)
    channels.send_due(NOW + timedelta(minutes=5))
    assert len(heard) == 1 and Message.objects.get().error == "it answered 500"
    assert "it answered 500" in client.get(ada.url("nightly/channels/")).content.decode()
    codes.append(200)
    channels.send_due(NOW + timedelta(minutes=20))
    channels.send_due(NOW + timedelta(days=2))
    assert len(heard) == 2


@pytest.mark.parametrize(
    ("kind", "address", "why"),
    [
        ("webhook", "http://example.org/", "begins with https"),
        ("webhook", "https://127.0.0.1/", "inside a private network"),
        ("webhook", "https://169.254.169.254/latest", "inside a private network"),
        ("apprise", "file:///etc/passwd", "is not one of"),
        ("apprise", "json://127.0.0.1/", "is not one of"),
        (
            "apprise",
            "mailto://localhost?user=a&pass=b&from=a@example.org&to=b@example.org",
            "inside a private network",
        ),
        ("apprise", "slack://nonsense", "cannot read"),
    ],
)
def test_addresses_that_no_message_should_go_to_are_refused(kind: str, address: str, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        channels.check_address(kind, address)


def test_a_channels_address_and_secret_are_shown_once_and_a_member_sees_neither(
    ada: Place, client: Client, ear: Any
) -> None:
    address, heard, _ = ear
    url = ada.url("nightly/channels/")
    fresh = client.post(url, {"name": "on call", "kind": "webhook", "address": address})
    secret = Channel.objects.get().secret
    assert secret and secret in fresh.content.decode()
    shown = client.get(url).content.decode()
    assert secret not in shown and address not in shown
    half = client.post(url, {"name": "half", "kind": "webhook", "address": address, "quiet_from": "22"})
    assert half.status_code == 422
    client.post(ada.url(f"nightly/channels/{Channel.objects.get().pk}/test"))
    assert json.loads(heard[0][1])["changes"] == []
    Membership.objects.update(role=Role.MEMBER)
    assert client.get(url).status_code == 403


def test_a_channel_is_changed_on_its_page_and_what_is_not_said_stays(
    ada: Place, client: Client, ear: Any
) -> None:
    address, heard, _ = ear
    made = hook(ada, "http://127.0.0.1:1/", quiet_from=22, quiet_to=6)
    ada.project.channels.create(name="second", kind="webhook", address=address)
    url = ada.url(f"nightly/channels/{made.pk}/")
    shown = client.get(url).content.decode()
    assert 'value="hook"' in shown and "22:00" in shown and "127.0.0.1" not in shown
    taken = client.post(url, {"name": "second", "kind": "apprise"})
    assert (taken.status_code, taken.content.decode().count("second is there already")) == (422, 1)
    assert "Change hook" in taken.content.decode()
    assert client.post(url, {"name": "pager", "quiet_from": "22"}).status_code == 422
    client.post(url, {"name": "pager", "kind": "apprise", "quiet_from": "", "quiet_to": ""})
    made.refresh_from_db()
    told = (made.name, made.kind, made.address, made.secret, made.quiet_from)
    assert told == ("pager", "webhook", "http://127.0.0.1:1/", "s3cret", None)
    client.post(url, {"name": "pager", "address": address})
    client.post(f"{url}test")
    assert len(heard) == 1
    log = str([entry.changes for entry in entries(ada.project.team)])
    assert "hidden" in log and address not in log and "s3cret" not in log
    Membership.objects.update(role=Role.MEMBER)
    assert [ask(url).status_code for ask in (client.get, client.post)] == [403, 403]
    assert client.post(f"{url}secret").status_code == 403


def test_another_secret_is_shown_once_and_signs_from_then_on(ada: Place, client: Client, ear: Any) -> None:
    address, heard, _ = ear
    made = hook(ada, address)
    url = ada.url(f"nightly/channels/{made.pk}/")
    assert "Make another secret" in client.get(url).content.decode()
    shown = client.post(f"{url}secret").content.decode()
    made.refresh_from_db()
    assert made.secret != "s3cret" and shown.count(made.secret) == 1
    assert made.secret not in client.get(ada.url("nightly/channels/")).content.decode()
    client.post(f"{url}test")
    ((headers, body),) = heard
    signed = channels.signature(made.secret, headers["X-Lab-Timestamp"], body)
    assert headers["X-Lab-Signature"] == f"sha256={signed}"
    chat = ada.project.channels.create(name="chat", kind="apprise", address="slack://x")
    asked = client.post(ada.url(f"nightly/channels/{chat.pk}/secret"), follow=True).content.decode()
    assert "chat is no webhook" in asked
    assert "Make another secret" not in client.get(ada.url(f"nightly/channels/{chat.pk}/")).content.decode()


def test_the_feed_opens_without_signing_in_until_its_owner_leaves(
    nightly: Schedule, ada: Place, client: Client
) -> None:
    record_step(nightly)
    changes.look(nightly, NOW)
    page = client.get(ada.url("nightly/changes/")).content.decode()
    address = page.split('class="button" href="')[-1].split('"')[0]
    read = Client().get(address)
    assert read["Content-Type"].startswith("application/atom+xml")
    assert read.content.decode().count("<entry>") == Change.objects.count()
    assert Client().get(address.replace("/changes.atom", "x/changes.atom")).status_code == 404
    Membership.objects.all().delete()
    assert Client().get(address).status_code == 404


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("width", variants(1440, 390))
def test_the_pages_of_changes_draw_and_can_be_read_by_everybody(
    settings: Any, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    monkeypatch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    there = place("ada", Role.ADMIN)
    made = services.create_schedule(there.project, there.user, SUITE, 2, 0)
    Schedule.objects.update(created_at=SLOT - timedelta(days=1))
    made.refresh_from_db()
    record_step(made)
    first = changes.look(made, NOW)[0]
    changes.comment(first, there.user, "The allocator changed that night.")
    told = hook(there, "https://example.org/")
    channel = f"nightly/channels/{told.pk}/"
    paths = ("nightly/", "nightly/changes/", f"nightly/changes/{first.pk}/", "nightly/channels/", channel)
    with serving() as address, browser_page(width=width) as page:
        enter(page, address, there.user)
        for path in paths:
            page.goto(address + there.url(path))
            if path == f"nightly/changes/{first.pk}/":
                place_of_plot = page.locator("#history .plot-container").first
                place_of_plot.wait_for()
                assert ink(page, place_of_plot) > 0.02
            assert serious(page) == [], path
            page.emulate_media(color_scheme="light")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
            if folder := os.environ.get("LAB_SHOTS"):
                name = path.strip("/").replace("/", "-")
                page.screenshot(path=f"{folder}/{name}-{width}.png", full_page=True)
