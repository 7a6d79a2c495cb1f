"""Schedules of suites and presets, and the nights they ran."""

from __future__ import annotations

from django.db import models
from django_celery_beat.models import PeriodicTask

from webapp.accounts.models import Project, User
from webapp.runs.models import Experiment, Preset


class Schedule(models.Model):
    """A suite of ``experiments/suites`` that a project runs at a time of day (UTC), or one of its presets.

    ``suite`` is the name of either.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="schedules")
    suite = models.CharField(max_length=80)
    preset = models.ForeignKey(
        Preset, on_delete=models.PROTECT, null=True, blank=True, related_name="schedules"
    )
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

    class Meta:
        ordering = ["-slot"]
        constraints = [
            models.UniqueConstraint(fields=["schedule", "slot"], name="one_night_per_schedule_and_slot")
        ]
