"""What people's own programs say of themselves as they run: series of figures by step, and where they ran.

The points of series are in ``points.py``, in a table that Postgres partitions by month.
"""

from __future__ import annotations

import re

from django.db import models
from django.utils import timezone

from webapp.artifacts.models import Artifact
from webapp.runs.models import LONGEST_METRIC, Run

#: The name of a figure: a word, as a search has them.
FIGURE = re.compile(rf'[^\s()<>=!,:"]{{1,{LONGEST_METRIC}}}')


class LoggedRun(models.Model):
    """A run that a program logs. ``offset`` is how many bytes of its log are stored here: what comes is taken
    where it begins just there, so that nothing is lost and nothing twice.

    ``has_ended``: its log says that it ended. One that was given up for its silence has not.
    """

    run = models.OneToOneField(Run, on_delete=models.CASCADE, related_name="logged", primary_key=True)
    environment = models.JSONField(default=dict)
    diff = models.TextField(blank=True, help_text="what the checkout had that its revision has not")
    offset = models.BigIntegerField(default=0)
    has_ended = models.BooleanField(default=False)
    heard_at = models.DateTimeField(default=timezone.now, db_index=True)
    files = models.ManyToManyField(Artifact, related_name="logged_runs", blank=True)

    def __str__(self) -> str:
        return str(self.run)


class Series(models.Model):
    """A figure of a logged run by step, in short: how many points it has, its last, least and largest value.

    ``broken`` of the points are no finite numbers, and count for neither of the three.
    """

    logged = models.ForeignKey(LoggedRun, on_delete=models.CASCADE, related_name="series")
    name = models.CharField(max_length=LONGEST_METRIC)
    count = models.BigIntegerField()
    broken = models.BigIntegerField()
    first_step = models.BigIntegerField()
    last_step = models.BigIntegerField()
    last = models.FloatField(null=True)
    least = models.FloatField(null=True)
    largest = models.FloatField(null=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["logged", "name"], name="one_series_a_name")]

    def __str__(self) -> str:
        return self.name


class LoggedTable(models.Model):
    """A small table of a logged run at a step: a confusion matrix, the slowest kernels, sampled answers."""

    logged = models.ForeignKey(LoggedRun, on_delete=models.CASCADE, related_name="tables")
    name = models.CharField(max_length=LONGEST_METRIC)
    step = models.BigIntegerField()
    columns = models.JSONField()
    rows = models.JSONField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["logged", "name", "step"], name="one_table_a_name_and_step")
        ]

    def __str__(self) -> str:
        return f"{self.name} at step {self.step}"


class LoggedImage(models.Model):
    """A picture of a logged run at a step, as its program made it; never decoded by the lab."""

    logged = models.ForeignKey(LoggedRun, on_delete=models.CASCADE, related_name="images")
    name = models.CharField(max_length=LONGEST_METRIC)
    step = models.BigIntegerField()
    kind = models.CharField(max_length=4)
    width = models.PositiveIntegerField()
    height = models.PositiveIntegerField()
    data = models.BinaryField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["logged", "name", "step"], name="one_image_a_name_and_step")
        ]

    def __str__(self) -> str:
        return f"{self.name} at step {self.step}"
