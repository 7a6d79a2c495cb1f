"""Schedules and nights: a suite is submitted once for each slot, however many messages come for it."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone
from django_celery_beat.models import CrontabSchedule, PeriodicTask

from experiments.core.errors import BadInput
from experiments.core.suites import load_suite
from webapp.accounts.models import Project, User
from webapp.nightly import suites
from webapp.nightly.canary import canaries
from webapp.nightly.models import Night, Schedule
from webapp.presentation import MOMENT_FORMAT
from webapp.runs import queue
from webapp.runs.models import Preset, Run

#: A slot whose message came later than this is not made up for: it would run into the working day.
GRACE = timedelta(hours=6)
EVERY_DAY = "0123456"
UNFINISHED = (Run.State.QUEUED, Run.State.RUNNING)


@transaction.atomic
def create_schedule(
    project: Project, user: User | None, suite: str | Preset, hour: int, minute: int, days: str = EVERY_DAY
) -> Schedule:
    """Runs the suite of that name, or a preset, on these days (0 is Monday) at this time (UTC), sent by
    beat.
    """
    preset = suite if isinstance(suite, Preset) else None
    name = preset.name if preset else load_suite(str(suite)).name
    made = Schedule.objects.create(
        project=project, suite=name, preset=preset, days=days, hour=hour, minute=minute, created_by=user
    )
    crontab, _ = CrontabSchedule.objects.get_or_create(
        hour=hour,
        minute=minute,
        day_of_week=_crontab_days(days),
        day_of_month="*",
        month_of_year="*",
        timezone="UTC",
    )
    made.task = PeriodicTask.objects.create(
        name=f"night {made.pk}", task=queue.NIGHT, crontab=crontab, expire_seconds=int(GRACE.total_seconds())
    )
    made.save(update_fields=["task"])
    return made


@transaction.atomic
def set_enabled(schedule: Schedule, enabled: bool) -> None:
    schedule.enabled = enabled
    schedule.save(update_fields=["enabled"])
    if schedule.task:
        schedule.task.enabled = enabled
        schedule.task.save()


@transaction.atomic
def remove(schedule: Schedule) -> None:
    """Takes away the schedule and its nights; the experiments of the nights stay."""
    task = schedule.task
    schedule.delete()
    if task:
        task.delete()


def _crontab_days(days: str) -> str:
    """In cron's words, where Sunday is 0."""
    return "*" if days == EVERY_DAY else ",".join(str((int(day) + 1) % 7) for day in days)


def last_slot(schedule: Schedule, now: datetime) -> datetime:
    """The latest time of the schedule, on one of its days, that is not after ``now``."""
    today = now.replace(hour=schedule.hour, minute=schedule.minute, second=0, microsecond=0)
    slot = today if today <= now else today - timedelta(days=1)
    while not schedule.runs_on(slot.weekday()):
        slot -= timedelta(days=1)
    return slot


def tick_due(now: datetime) -> None:
    """Runs every slot that is due. A lost, late or doubled message changes nothing about what runs."""
    for schedule in Schedule.objects.filter(enabled=True, project__trashed_at=None):
        slot = last_slot(schedule, now)
        if schedule.created_at <= slot and now - slot < GRACE:
            tick(schedule, slot)


@transaction.atomic
def tick(schedule: Schedule, slot: datetime) -> Night:
    """The night of ``slot``. The unique key on schedule and slot lets only one caller submit its runs:
    a second one waits for the first one's transaction and finds the night there."""
    night, is_new = Night.objects.get_or_create(schedule=schedule, slot=slot)
    if is_new:
        _start(night)
    return night


def run_now(schedule: Schedule) -> Night:
    """A night outside the schedule; twice in one minute is once."""
    return tick(schedule, timezone.now().replace(second=0, microsecond=0))


def _start(night: Night) -> None:
    """Submits the suite, or says why not."""
    night.skipped = _obstacle(night)
    if not night.skipped:
        try:
            with transaction.atomic():
                _submit(night)
        except BadInput as error:
            night.skipped = str(error)[:200]
    night.save(update_fields=["skipped", "experiment"])


def _obstacle(night: Night) -> str:
    earlier = Night.objects.filter(schedule=night.schedule, slot__lt=night.slot, experiment__isnull=False)
    unfinished = earlier.filter(experiment__runs__state__in=UNFINISHED).first()
    return f"the night of {unfinished.slot:{MOMENT_FORMAT}} has not ended" if unfinished else ""


def _submit(night: Night) -> None:
    schedule, slot = night.schedule, f"{night.slot:{MOMENT_FORMAT}}"
    if schedule.preset:
        name = f"{schedule.preset}, {slot}"
        night.experiment = suites.submit_preset(schedule.preset, schedule.created_by, name, canaries)
        return
    suite = load_suite(schedule.suite)
    name = f"{suite.title}, {slot}"
    night.experiment = suites.submit(suite, schedule.project, schedule.created_by, name, canaries)
