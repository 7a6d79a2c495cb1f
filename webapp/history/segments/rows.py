"""Runs read row by row into columns: to be kept in a segment, or because no segment holds them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from datetime import datetime
from itertools import chain
from typing import Any
from uuid import UUID

import orjson
from django.db.models import Exists, F, OuterRef, QuerySet, Subquery, TextField
from django.db.models.functions import Cast, Coalesce

from webapp.history import archive
from webapp.history.models import LONGEST_PARAM, RunTag
from webapp.history.search.fields import COLUMNS
from webapp.history.segments.columns import Block, Column, Key, column_of, numbers_of
from webapp.history.segments.conditions import OWN, microseconds
from webapp.runs.models import Run, RunMetric

#: The column of those that carry the tag of archived runs.
ARCHIVED: Key = ("tag", archive.ARCHIVED)
#: The column of experiments' ids, since one in the trash has its runs there.
EXPERIMENT: Key = ("hidden", "experiment")
#: Where the keys of a kind are in a spec.
OBJECTS = {"knob": "spec__knobs", "option": "spec__workload__options"}
#: The moment by which ended runs are in segments: when it was queued, where none was told.
ENDED = Coalesce("finished_at", "queued_at")
#: What is no value of JSON, as one.
STORED_AS: dict[Key, Callable[[Any], Any]] = {("column", "time"): microseconds, EXPERIMENT: str}
#: Programs may name their parameters as they like, a thousand a run.
MOST_FIELDS = 20_000
#: Runs whose figures are read at once.
AT_ONCE = 5_000


def recorded_runs() -> QuerySet[Run]:
    """What searches find, in no order."""
    return Run.objects.filter(kind__in=Run.RECORDED).order_by()


def ended_between(project: int, begins: datetime, ends: datetime) -> QuerySet[Run]:
    """Those of a project that ended from ``begins`` on and before ``ends``."""
    bounds = {"ended__gte": begins, "ended__lt": ends}
    return recorded_runs().filter(project=project, state__in=Run.FINAL).alias(ended=ENDED).filter(**bounds)


def read_block(runs: QuerySet[Run], keys: Set[Key] | None = None) -> Block:
    """The runs with those of their fields that are asked for, or with all; with none where these are more
    than ``MOST_FIELDS``.
    """
    asked = {**_own(keys), **_objects(keys), **_figures(keys), **_hidden(keys)}
    named = {f"told_{place}": expression for place, expression in enumerate(asked.values())}
    rows = list(runs.annotate(**named).values_list("pk", *named))
    told = list(zip(*rows, strict=True)) if rows else [()] * (1 + len(asked))
    found: defaultdict[Key, dict[int, Any]] = defaultdict(dict)
    figures = _every_figure(told[0]) if keys is None else ()
    parts = (_values_of(key, values, keys) for key, values in zip(asked, told[1:], strict=True))
    for field, place, value in chain(*parts, figures):
        found[field][place] = value
        if len(found) > MOST_FIELDS:
            return Block(len(rows), {})
    return Block(len(rows), {key: _column(key, values, len(rows)) for key, values in found.items()})


def _own(keys: Set[Key] | None) -> dict[Key, Any]:
    wanted = [("column", name) for name in OWN if keys is None or ("column", name) in keys]
    return {key: F(COLUMNS[key[1]][0]) for key in wanted}


def _objects(keys: Set[Key] | None) -> dict[Key, Any]:
    """Objects of the spec in whole, as text, for the database takes them apart more slowly."""
    kinds = [kind for kind in OBJECTS if keys is None or any(kind == one for one, _ in keys)]
    return {(kind, ""): Cast(OBJECTS[kind], TextField()) for kind in kinds}


def _figures(keys: Set[Key] | None) -> dict[Key, Any]:
    """One look for each run: joined, the database reads the figure of all runs for a few of them."""
    wanted = sorted(key for key in keys or () if key[0] == "metric")
    own = RunMetric.objects.filter(run=OuterRef("pk"))
    return {key: Subquery(own.filter(name=key[1]).values("value")) for key in wanted}


def _hidden(keys: Set[Key] | None) -> dict[Key, Any]:
    """What may keep a run out of a list."""
    marks = RunTag.objects.filter(run=OuterRef("pk"), name=archive.ARCHIVED)
    known = {ARCHIVED: Exists(marks), EXPERIMENT: F("experiment_id")}
    return {key: expression for key, expression in known.items() if keys is None or key in keys}


def _values_of(key: Key, values: Sequence[Any], keys: Set[Key] | None) -> Iterator[tuple[Key, int, Any]]:
    """The values that there are by field and row; of an object's fields those that are asked for."""
    if key[0] in OBJECTS:
        for place, told in enumerate(values):
            for name, one in _fields_of(told):
                if len(name) <= LONGEST_PARAM and (keys is None or (key[0], name) in keys):
                    yield (key[0], name), place, one
        return
    stored_as = STORED_AS.get(key)
    for place, value in enumerate(values):
        if value is not None and value is not False:
            yield key, place, stored_as(value) if stored_as else value


def _fields_of(text: str | None) -> Iterable[tuple[str, Any]]:
    told = orjson.loads(text) if text else None
    return told.items() if isinstance(told, dict) else ()


def _every_figure(runs: Sequence[UUID]) -> Iterator[tuple[Key, int, float]]:
    for first in range(0, len(runs), AT_ONCE):
        places = {run: place for place, run in enumerate(runs[first : first + AT_ONCE], first)}
        metrics = RunMetric.objects.filter(run__in=places).order_by()
        for run, name, value in metrics.values_list("run", "name", "value"):
            yield ("metric", name), places[run], value


def _column(key: Key, values: dict[int, Any], size: int) -> Column:
    rows = sorted(values)
    told = [values[row] for row in rows]
    return numbers_of(told, rows, size) if key[0] == "metric" else column_of(told, rows, size)
