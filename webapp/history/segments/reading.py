"""Groups of a long history: from the columns of its segments, and from the rows of what no segment holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np
import psycopg
from django.db import connection
from django.db.models import QuerySet

from webapp.history.models import Segment
from webapp.history.search.tree import Query
from webapp.history.segments.columns import Block, Column, Key, Mask, decode
from webapp.history.segments.conditions import Unanswerable, key_of, keys_of
from webapp.history.segments.grouping import Groups
from webapp.history.segments.joining import join_blocks
from webapp.history.segments.rows import ARCHIVED, EXPERIMENT, ended_between, read_block, recorded_runs
from webapp.runs.models import Experiment, Run

#: So many runs that no segment holds are read row by row; with more, all is left to the database.
MOST_ROWS = 20_000
GOING_ON = (Run.State.QUEUED, Run.State.RUNNING)
#: Both are bounds, since the database expects a third of all runs within one, and few within two.
BEGINNING, END = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
#: The columns of every segment that holds what the runs of these projects are, in one look: one that is
#: built anew meanwhile is as it was. A field that no run of a segment has, has no column in it.
COLUMNS = """
    SELECT segment.id, segment.project_id, segment.begins, segment.ends, segment.size,
        field.kind, field.name, field.words, field.values, field.rows
    FROM history_segment AS segment JOIN history_segmentcolumn AS field ON field.segment_id = segment.id
    WHERE segment.project_id = ANY(%s::bigint[])
        AND NOT EXISTS (SELECT FROM history_segmentmark AS mark WHERE mark.segment_id = segment.id)
        AND (field.kind, field.name) IN (SELECT * FROM unnest(%s::text[], %s::text[]))
    ORDER BY segment.project_id, segment.begins
"""
#: Every run has it, so that a segment with any run is found by it.
ALWAYS: Key = ("column", "state")


@dataclass(frozen=True)
class Stretch:
    """Runs of a project that ended from ``begins`` on and before ``ends``."""

    project: int
    begins: datetime
    ends: datetime


@dataclass(frozen=True)
class _Field:
    segment: int
    stretch: Stretch
    size: int
    key: Key
    column: Column


@dataclass(frozen=True)
class Shown:
    """Which runs are to be seen: archived ones or not, and none of the experiments in the trash."""

    with_archived: bool
    trashed: frozenset[str]

    @classmethod
    def among(cls, projects: Sequence[int], with_archived: bool) -> Shown:
        trashed = Experiment.objects.filter(project__in=projects, trashed_at__isnull=False)
        return cls(with_archived, frozenset(map(str, trashed.values_list("pk", flat=True))))

    @property
    def keys(self) -> set[Key]:
        """What has to be known of a run."""
        return {ARCHIVED, *([EXPERIMENT] if self.trashed else [])}

    def hides(self, block: Block) -> Mask:
        hidden = np.zeros(block.size, bool)
        if not self.with_archived and (archived := block.columns.get(ARCHIVED)):
            hidden |= archived.among(block.size, {True})
        if self.trashed and (experiments := block.columns.get(EXPERIMENT)):
            hidden |= experiments.among(block.size, self.trashed)
        return hidden


@dataclass(frozen=True)
class Grouped:
    """``count`` runs are found; the first of their groups have ``rows`` as ``search/rows.py: groups`` makes
    them.
    """

    count: int
    rows: list[dict[str, Any]]


def groups_of_many(projects: Sequence[int], query: Query, most: int, with_archived: bool) -> Grouped | None:
    """The groups of what is found; ``None`` where segments do not hold what is asked, or not enough of it."""
    if not Segment.objects.filter(project__in=projects).exists():
        return None
    try:
        keys = _keys_of(query)
    except Unanswerable:
        return None
    shown = Shown.among(projects, with_archived)
    blocks = list(_blocks(projects, {*keys, *shown.keys, ALWAYS}))
    outside = list(_outside(projects, [stretch for stretch, _ in blocks]))
    if sum(runs[: MOST_ROWS + 1].count() for runs in outside) > MOST_ROWS:
        return None
    made = Groups(query)
    rows = [read_block(runs, keys | shown.keys) for runs in outside]
    for block in join_blocks([*(block for _, block in blocks), *rows]):
        made.add(block, shown.hides(block))
    return Grouped(made.count, made.rows(most))


def _keys_of(query: Query) -> set[Key]:
    fields = [*query.group, *(one.field for one in query.aggregates if one.field)]
    return {*map(key_of, fields), *(keys_of(query.condition) if query.condition else ())}


def _blocks(projects: Sequence[int], keys: Iterable[Key]) -> Iterator[tuple[Stretch, Block]]:
    for _, fields in groupby(_fields(projects, sorted(keys)), attrgetter("segment")):
        columns = list(fields)
        yield columns[0].stretch, Block(columns[0].size, {field.key: field.column for field in columns})


def _fields(projects: Sequence[int], keys: Sequence[Key]) -> Iterator[_Field]:
    connection.ensure_connection()
    # Bytes come as they are, and not as text of twice the length.
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        asked = [list(projects), [kind for kind, _ in keys], [name for _, name in keys]]
        for row in cursor.execute(COLUMNS, asked, binary=True):
            segment, project, begins, ends, size, kind, name, *stored = row
            yield _Field(segment, Stretch(project, begins, ends), size, (kind, name), decode(*stored))


def _outside(projects: Sequence[int], held: Sequence[Stretch]) -> Iterator[QuerySet[Run]]:
    """The runs that go on, and those that ended outside of what is held, each part by an index."""
    runs = recorded_runs().filter(project__in=projects)
    yield from (runs.filter(state=state) for state in GOING_ON)
    for project in projects:
        begins = BEGINNING
        for stretch in (one for one in held if one.project == project):
            if begins != stretch.begins:
                yield ended_between(project, begins, stretch.begins)
            begins = stretch.ends
        yield ended_between(project, begins, END)
