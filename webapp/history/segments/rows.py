"""Runs read row by row into columns: to be kept in a segment, or because no segment holds them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from itertools import chain
from typing import Any
from uuid import UUID

import orjson
from django.db.models import Exists, F, OuterRef, QuerySet, Subquery, TextField
from django.db.models.fields.json import KeyTransform
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
    objects = _whole_objects() if keys is None else _parts(keys)
    asked = {**_own(keys), **objects, **_figures(keys), **_hidden(keys)}
    named = {f"told_{place}": expression for place, expression in enumerate(asked.values())}
    rows = list(runs.annotate(**named).values_list("pk", *named))
    told = list(zip(*rows, strict=True)) if rows else [()] * (1 + len(asked))
    found = dict(zip(asked, told[1:], strict=True))
    whole = {key: found.pop(key) for key in objects} if keys is None else {}
    columns = {key: _column(key, values) for key, values in found.items()}
    inside = _columns_of_all(told[0], whole) if keys is None else {}
    if len(columns) + len(inside) > MOST_FIELDS:
        return Block(len(rows), {})
    return Block(len(rows), {key: one for key, one in (columns | inside).items() if len(one.values)})


def _own(keys: Set[Key] | None) -> dict[Key, Any]:
    wanted = [("column", name) for name in OWN if keys is None or ("column", name) in keys]
    return {key: F(COLUMNS[key[1]][0]) for key in wanted}


def _whole_objects() -> dict[Key, Any]:
    """Objects of the spec as text, for the database takes them apart more slowly."""
    return {(kind, ""): Cast(path, TextField()) for kind, path in OBJECTS.items()}


def _parts(keys: Set[Key]) -> dict[Key, Any]:
    """Values of single keys of the spec's objects, as text."""
    wanted = sorted(key for key in keys if key[0] in OBJECTS)
    return {key: Cast(KeyTransform(key[1], OBJECTS[key[0]]), TextField()) for key in wanted}


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


def _column(key: Key, values: Sequence[Any]) -> Column:
    """Of one value for each run; ``None`` and false are none."""
    rows = [place for place, value in enumerate(values) if value is not None and value is not False]
    there = [values[row] for row in rows]
    stored_as = STORED_AS.get(key) or (orjson.loads if key[0] in OBJECTS else None)
    return _make_column(key, list(map(stored_as, there)) if stored_as else there, rows, len(values))


def _columns_of_all(runs: Sequence[UUID], objects: Mapping[Key, Sequence[Any]]) -> dict[Key, Column]:
    """Of every figure and every part of the objects that any run has; of no more than are kept."""
    found: defaultdict[Key, dict[int, Any]] = defaultdict(dict)
    for field, place, value in chain(_every_part(objects), _every_figure(runs)):
        found[field][place] = value
        if len(found) > MOST_FIELDS:
            break
    rows = {key: sorted(of) for key, of in found.items()}
    return {
        key: _make_column(key, [of[row] for row in rows[key]], rows[key], len(runs))
        for key, of in found.items()
    }


def _every_part(objects: Mapping[Key, Sequence[Any]]) -> Iterator[tuple[Key, int, Any]]:
    for (kind, _), values in objects.items():
        for place, told in enumerate(values):
            for name, one in _fields_of(told):
                if len(name) <= LONGEST_PARAM:
                    yield (kind, name), place, one


def _fields_of(text: str | None) -> Iterable[tuple[str, Any]]:
    told = orjson.loads(text) if text else None
    return told.items() if isinstance(told, dict) else ()


def _every_figure(runs: Sequence[UUID]) -> Iterator[tuple[Key, int, float]]:
    for first in range(0, len(runs), AT_ONCE):
        places = {run: place for place, run in enumerate(runs[first : first + AT_ONCE], first)}
        metrics = RunMetric.objects.filter(run__in=places).order_by()
        for run, name, value in metrics.values_list("run", "name", "value"):
            yield ("metric", name), places[run], value


def _make_column(key: Key, values: Sequence[Any], rows: Sequence[int], size: int) -> Column:
    return numbers_of(values, rows, size) if key[0] == "metric" else column_of(values, rows, size)
