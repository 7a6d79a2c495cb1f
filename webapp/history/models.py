"""What people put on runs, and searches that they keep."""

from __future__ import annotations

import re

from django.db import models

from webapp.accounts.models import Project, User
from webapp.runs.models import Run

#: A tag is a word that a search can name without quotes.
TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
#: Characters of a note and of a comment.
LONGEST_NOTE, LONGEST_COMMENT = 20_000, 8_000
#: Characters of the name of a parameter, knob or option that has a column in segments.
LONGEST_PARAM = 100
TAG_IN_WORDS = "letters, digits, dots, dashes and underscores, at most 40"


class RunTag(models.Model):
    """A word that somebody put on a run."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="tags")
    name = models.CharField(max_length=40)
    by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "name"], name="one_tag_of_a_name_on_a_run")]
        indexes = [models.Index(fields=["name", "run"], name="runs_of_tag")]

    def __str__(self) -> str:
        return self.name


class SavedView(models.Model):
    """A search under a name: its owner's, or where it is ``shared`` the team's."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="views")
    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=80)
    query = models.TextField(max_length=4000, blank=True)
    columns = models.CharField(max_length=1000, blank=True)
    shared = models.BooleanField(default=False)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["project", "owner", "name"], name="one_view_a_name")]

    def __str__(self) -> str:
        return self.name


class RunNote(models.Model):
    """What is to be known of a run, in Markdown: one text that everybody of the team may improve."""

    run = models.OneToOneField(Run, on_delete=models.CASCADE, related_name="note", primary_key=True)
    text = models.TextField(max_length=LONGEST_NOTE)
    by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return self.text[:80]


class RunComment(models.Model):
    """What somebody said about a run, in Markdown; ``mentioned`` are those whose names are in it."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="comments")
    author = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    text = models.TextField(max_length=LONGEST_COMMENT)
    at = models.DateTimeField(auto_now_add=True)
    mentioned = models.ManyToManyField(User, related_name="mentions", blank=True)

    class Meta:
        ordering = ["at", "pk"]

    def __str__(self) -> str:
        return self.text[:80]


class Segment(models.Model):
    """Runs of a project that ended from ``begins`` on and before ``ends``, some thousands, whose fields stand
    in columns of their own as well (``webapp/history/segments``): what groups of a long history are made of.

    ``short`` ones have fewer, until a whole one has taken their place. ``size`` rows; ``None`` until it is
    built. What began before the transaction ``armed`` may not know of it.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    begins = models.DateTimeField()
    ends = models.DateTimeField()
    armed = models.BigIntegerField(null=True)
    size = models.PositiveIntegerField(null=True)
    short = models.BooleanField(default=False, db_default=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "begins", "short"], name="one_segment_at_a_time")
        ]

    def __str__(self) -> str:
        return f"{self.begins:%Y-%m-%d %H:%M:%S} to {self.ends:%Y-%m-%d %H:%M:%S}"


class SegmentColumn(models.Model):
    """One field of a segment's runs, as ``segments/columns.py`` encodes it."""

    segment = models.ForeignKey(Segment, on_delete=models.CASCADE, related_name="columns", db_index=False)
    kind = models.CharField(max_length=8)
    name = models.CharField(max_length=LONGEST_PARAM)
    words = models.BinaryField(null=True)
    values = models.BinaryField()
    rows = models.BinaryField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["segment", "kind", "name"], name="one_column_of_a_field")
        ]


class SegmentMark(models.Model):
    """A run of the segment changed after it was built: its columns say nothing until it is built anew.

    Written by triggers (migration 0003), without a constraint to the segment, so that nobody waits for who
    builds it.
    """

    segment = models.ForeignKey(
        Segment, on_delete=models.DO_NOTHING, related_name="marks", db_constraint=False, db_index=False
    )
    transaction = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["segment", "transaction"], name="one_mark_of_a_transaction")
        ]
