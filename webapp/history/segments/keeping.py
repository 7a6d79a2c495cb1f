"""Segments are made of runs that ended a while ago, and built anew where one of their runs changed: whole
ones, and short ones of what ended after the last of them.

What a transaction changes is marked in it, by triggers, and a segment with a mark is not read. A transaction
that began before its segment was there cannot mark it, so a segment is built once all of those have ended.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import Exists, Max, OuterRef, Q, QuerySet

from webapp.accounts.models import Project
from webapp.history.models import Segment, SegmentColumn, SegmentMark
from webapp.history.segments.columns import encode
from webapp.history.segments.rows import ENDED, ended_between, read_block
from webapp.runs.models import Run

#: Runs of a segment, and of a short one.
SIZE, SHORT = 8_192, 1_024
#: Runs that ended as lately may soon be tagged, or go on after all.
LATELY = timedelta(minutes=10)
#: How long one go may form segments, and then build them (seconds), for others wait behind it.
LONGEST = 2.0
#: A key of Postgres' advisory locks: one at a time makes and builds segments.
SEGMENTS = 0x5E67E27


def go_on(now: datetime) -> bool:
    """Make the segments that are due, and build what was made before or has changed, as time allows; whether
    there is more to be built.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [SEGMENTS])
        if not cursor.fetchone()[0]:
            return False
        try:
            return _go_on(now)
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [SEGMENTS])


def _go_on(now: datetime) -> bool:
    until = time.monotonic() + LONGEST
    for project in Project.objects.filter(trashed_at=None).order_by("?"):  # none is always the last
        form(project, now - LATELY, until)
    until = time.monotonic() + LONGEST
    number = _transaction()
    # A database that was restored on another server begins with smaller numbers.
    Segment.objects.filter(Q(armed=None) | Q(armed__gt=number)).update(armed=number)
    SegmentMark.objects.exclude(segment__in=Segment.objects.values("pk")).delete()
    for segment in waiting():
        if time.monotonic() > until:
            return True
        build(segment)
    return False


def form(project: Project, before: datetime, until: float = math.inf) -> None:
    """Segments of the project's runs that ended before then, whole ones behind the last of them and short
    ones behind all; not yet built. The clock (``time.monotonic``) may cut it short.
    """
    _form(project, False, SIZE, before, until)
    _form(project, True, SHORT, before, until)


def _form(project: Project, short: bool, size: int, before: datetime, until: float) -> None:
    there = Segment.objects.filter(project=project, short__in={short, False})
    begins = there.aggregate(Max("ends"))["ends__max"] or _first_end(project)
    while begins is not None and time.monotonic() < until:
        ends = _end_of_segment(project, begins, size)
        if ends is None or ends >= before:
            return
        Segment.objects.create(project=project, begins=begins, ends=ends, short=short)
        begins = ends


def _ended_runs(project: Project) -> QuerySet[Run]:
    """In that order; those in the trash too, so that bounds do not move when they come back."""
    found = Run.everything.filter(project=project, state__in=Run.FINAL)
    return found.alias(ended=ENDED).order_by("ended")


def _first_end(project: Project) -> datetime | None:
    return _ended_runs(project).values_list(ENDED, flat=True).first()


def _end_of_segment(project: Project, begins: datetime, size: int) -> datetime | None:
    """When the first run ended that the segment has no room for; of one moment it has all."""
    ends = _ended_runs(project).values_list(ENDED, flat=True)
    found = ends.filter(**{"ended__gte": begins})[size : size + 1].first()
    return found if found != begins else ends.filter(**{"ended__gt": begins}).first()


def waiting() -> Iterator[Segment]:
    """Segments that are to be built, and that all who write know of; no short one in place of which there
    will be a whole one.
    """
    marked = Exists(SegmentMark.objects.filter(segment=OuterRef("pk")))
    bounds = {"begins__lt": OuterRef("ends"), "ends__gt": OuterRef("begins")}
    whole = Exists(Segment.objects.filter(project=OuterRef("project"), short=False, **bounds))
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
        oldest = cursor.fetchone()[0]
    due = Segment.objects.filter(Q(size=None) | marked, armed__lt=oldest)
    yield from due.exclude(whole, short=True).order_by("-begins")


def _transaction() -> int:
    """A transaction that began now, and so after all that had made segments before."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_xact_id()::text::bigint")
        return int(cursor.fetchone()[0])


def build(segment: Segment) -> None:
    """The columns of its runs in place of those of before, and of the short ones where it is whole. Marks are
    looked at first: what changes later leaves one that stays.
    """
    with transaction.atomic():
        marks = list(SegmentMark.objects.filter(segment=segment).values_list("pk", flat=True))
        _store(segment)
        if not segment.short:
            _short_ones(segment).delete()
        SegmentMark.objects.filter(pk__in=marks).delete()


def _short_ones(segment: Segment) -> QuerySet[Segment]:
    """Those that have runs of the segment."""
    bounds = {"begins__lt": segment.ends, "ends__gt": segment.begins}
    return Segment.objects.filter(project=segment.project_id, short=True, **bounds)


def _store(segment: Segment) -> None:
    runs = ended_between(segment.project_id, segment.begins, segment.ends)
    block = read_block(runs.order_by(ENDED, "pk"))
    segment.columns.all().delete()
    SegmentColumn.objects.bulk_create(
        [
            SegmentColumn(segment=segment, kind=kind, name=name, words=words, values=values, rows=rows)
            for (kind, name), column in block.columns.items()
            for words, values, rows in [encode(column)]
        ]
    )
    segment.size = block.size
    segment.save(update_fields=["size"])
