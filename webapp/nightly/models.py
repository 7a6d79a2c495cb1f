"""Schedules of suites and presets, the nights they ran, and the changes that were found in them."""

from __future__ import annotations

from django.db import models
from django_celery_beat.models import PeriodicTask

from webapp.accounts.models import Project, User
from webapp.compare.statistics import difference
from webapp.runs.models import Experiment, Preset, Run

#: Monday is 0.
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


class Schedule(models.Model):
    """A suite of ``experiments/suites`` that a project runs at a time of day (UTC), or one of its presets.

    ``suite`` is the name of either.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="schedules")
    suite = models.CharField(max_length=80)
    preset = models.ForeignKey(
        Preset, on_delete=models.PROTECT, null=True, blank=True, related_name="schedules"
    )
    #: Days of the week that it runs on, Monday is 0.
    days = models.CharField(max_length=7, default="0123456")
    hour = models.PositiveSmallIntegerField(default=2)
    minute = models.PositiveSmallIntegerField(default=0)
    enabled = models.BooleanField(default=True)
    # Named, because the default name would hide PeriodicTask.schedule, which beat reads, and beat would end.
    task = models.OneToOneField(
        PeriodicTask, on_delete=models.SET_NULL, null=True, blank=True, related_name="nightly_schedule"
    )
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.suite} at {self.hour:02}:{self.minute:02} UTC"

    @property
    def days_in_words(self) -> str:
        return "every day" if len(self.days) == 7 else ", ".join(DAYS[int(day)] for day in self.days)

    def runs_on(self, weekday: int) -> bool:
        """Whether it runs on that day of the week (Monday is 0) of UTC."""
        return str(weekday) in self.days

    def get_additional_data(self) -> dict[str, int]:
        """For the audit log: whose log an entry belongs to."""
        return {"team": self.project.team_id}


class Night(models.Model):
    """One slot of a schedule. Unique, so that two beats or a doubled message run it once."""

    schedule = models.ForeignKey(Schedule, on_delete=models.CASCADE, related_name="nights")
    slot = models.DateTimeField()
    experiment = models.OneToOneField(
        Experiment, on_delete=models.SET_NULL, null=True, blank=True, related_name="night"
    )
    skipped = models.CharField(max_length=200, blank=True)
    #: When its figures were looked at for changes: once its last run has ended.
    looked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-slot"]
        constraints = [
            models.UniqueConstraint(fields=["schedule", "slot"], name="one_night_per_schedule_and_slot")
        ]


class Change(models.Model):
    """A figure of a schedule's nights that stepped to another level, and what people made of it.

    ``slot`` is the first night of the new level. A measured step is run again before anybody is told of it.
    """

    class State(models.TextChoices):
        CONFIRMING = "confirming", "being run again"
        UNCONFIRMED = "unconfirmed", "not there when run again"
        OPEN = "open", "open"
        ACKNOWLEDGED = "acknowledged", "acknowledged"
        FALSE_ALARM = "false_alarm", "false alarm"
        FIXED = "fixed", "fixed"
        VANISHED = "vanished", "not seen any more"
        DRIFT = "drift", "the host drifted"

    #: What people decide; the others follow from figures.
    DECISIONS = (State.OPEN, State.ACKNOWLEDGED, State.FALSE_ALARM, State.FIXED)

    schedule = models.ForeignKey(Schedule, on_delete=models.CASCADE, related_name="changes")
    title = models.CharField(max_length=200)
    metric = models.CharField(max_length=80)
    slot = models.DateTimeField()
    before = models.FloatField()
    after = models.FloatField()
    better = models.BooleanField(null=True)
    suspects = models.CharField(max_length=300)
    run = models.ForeignKey(Run, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    state = models.CharField(max_length=12, choices=State, default=State.OPEN)
    found_at = models.DateTimeField()
    confirmation = models.ForeignKey(
        Experiment, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    #: The median when it was run again; empty for simulated figures, which are the same each time.
    again = models.FloatField(null=True, blank=True)
    assignee = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    decided_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    decided_at = models.DateTimeField(null=True, blank=True)
    #: By how much the host's canary slowed down over the same nights, where it tells.
    drift = models.FloatField(null=True, blank=True)
    #: Whether Otava sees it, too; empty where it was not asked.
    seconded = models.BooleanField(null=True, blank=True)
    #: Old when it was found (nights of before this page): shown, but nobody is sent word of it.
    silent = models.BooleanField(default=False)

    class Meta:
        ordering = ["-slot", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["schedule", "title", "metric", "slot"], name="one_change_per_series_and_slot"
            )
        ]

    def __str__(self) -> str:
        return f"{self.metric} of {self.title}"

    def get_additional_data(self) -> dict[str, int]:
        """For the audit log: whose log an entry belongs to."""
        return {"team": self.schedule.project.team_id}

    @property
    def fraction(self) -> float | None:
        """The new level as a change of the old one."""
        return difference(self.after, self.before)


class Bisection(models.Model):
    """The search for the commit that a change is of.

    ``revisions`` are those of the range that changed the package, the oldest first: from the last one that
    gave the old figure on. ``found`` is the first that gives the new one.
    """

    class State(models.TextChoices):
        RUNNING = "running", "searching"
        FOUND = "found", "found"
        UNCLEAR = "unclear", "found but for revisions that give no figure"
        NOT_CODE = "not_code", "not the code"
        FAILED = "failed", "cannot be told"

    change = models.ForeignKey(Change, on_delete=models.CASCADE, related_name="bisections")
    experiment = models.ForeignKey(Experiment, on_delete=models.SET_NULL, null=True, related_name="+")
    revisions = models.JSONField()
    state = models.CharField(max_length=10, choices=State, default=State.RUNNING)
    found = models.CharField(max_length=40, blank=True)
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["change"], condition=models.Q(state="running"), name="one_search_of_a_change"
            )
        ]


class ChangeComment(models.Model):
    change = models.ForeignKey(Change, on_delete=models.CASCADE, related_name="comments")
    author = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    text = models.TextField(max_length=4000)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["at", "pk"]


class Channel(models.Model):
    """Where a project's changes are told: an address of Apprise (mail, chat), or a webhook that is signed.

    The address is a secret: it is shown to nobody again. Between the quiet hours (UTC) nothing is sent.
    """

    class Kind(models.TextChoices):
        APPRISE = "apprise", "mail or chat (an address of Apprise)"
        WEBHOOK = "webhook", "webhook, signed"

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="channels")
    name = models.CharField(max_length=80)
    kind = models.CharField(max_length=8, choices=Kind)
    address = models.TextField(max_length=2000)
    secret = models.CharField(max_length=64, blank=True)
    quiet_from = models.PositiveSmallIntegerField(null=True, blank=True)
    quiet_to = models.PositiveSmallIntegerField(null=True, blank=True)
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="one_channel_a_name")]

    def __str__(self) -> str:
        return self.name

    def get_additional_data(self) -> dict[str, int]:
        """For the audit log: whose log an entry belongs to."""
        return {"team": self.project.team_id}

    def is_quiet(self, hour: int) -> bool:
        """Whether nothing is sent at that hour of UTC; the quiet hours may reach over midnight."""
        if self.quiet_from is None or self.quiet_to is None:
            return False
        if self.quiet_from <= self.quiet_to:
            return self.quiet_from <= hour < self.quiet_to
        return hour >= self.quiet_from or hour < self.quiet_to


class Message(models.Model):
    """What was sent to a channel, or why it could not be."""

    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="messages")
    changes = models.ManyToManyField(Change, related_name="messages")
    at = models.DateTimeField()
    error = models.CharField(max_length=300, blank=True)

    class Meta:
        ordering = ["-at"]
