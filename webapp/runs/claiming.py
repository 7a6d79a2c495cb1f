"""Which queued run a worker takes next, and the one statement that takes it.

The choice is a query like any other; it is compiled once for a host, as a part of the statement that writes
the claim and reads the run with its file. Each connection has Postgres plan that statement once: to plan it
costs more than to carry it out.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from django.db import connection
from django.db.models import Field, Model, Q, QuerySet
from django.db.models.functions import Now

from webapp.artifacts.models import Artifact, Blob
from webapp.hosts.models import Host
from webapp.runs import turns
from webapp.runs.models import Run

EVERYTHING = Q()
#: Compiled choices that a process keeps: those of its slots by what other slots are at.
CHOICES = 64
#: Of the choice nothing is a parameter: Postgres keeps a plan for all values of one only where no index with
#: a condition could be better for some, and the index of what waits has one.
TAKE = """
PREPARE {name} (bigint, text, double precision) AS
WITH taken AS (
    UPDATE runs_run SET state = 'running', attempt = attempt + 1, host_id = $1, sandbox_tier = $2,
        lease_until = statement_timestamp() + $3 * interval '1 second', heartbeat_at = statement_timestamp(),
        started_at = statement_timestamp(), progress = 0, progress_step = '', progress_at = NULL
    WHERE id = ({first} FOR UPDATE OF runs_run SKIP LOCKED) RETURNING *
)
SELECT {columns} FROM taken
LEFT JOIN artifacts_artifact ON artifacts_artifact.id = taken.artifact_id
LEFT JOIN artifacts_blob ON artifacts_blob.sha256 = artifacts_artifact.blob_id
"""


@dataclass(frozen=True)
class Part:
    """The columns of one model in a row of several; ``table`` is what the statement calls it."""

    model: type[Model]
    table: str

    @property
    def fields(self) -> Sequence[Field[Any, Any]]:
        return self.model._meta.concrete_fields

    @property
    def columns(self) -> str:
        return ", ".join(f'{self.table}."{field.column}"' for field in self.fields)

    @functools.cached_property
    def names(self) -> list[str]:
        return [field.attname for field in self.fields]

    @functools.cached_property
    def converters(self) -> list[tuple[int, Callable[..., Any]]]:
        """What turns a value of the database into the model's, by the value's place."""
        places = enumerate(self.fields)
        return [
            (place, convert) for place, field in places for convert in field.get_db_converters(connection)
        ]

    def instance(self, row: Sequence[Any]) -> Any:
        """The model of a row's part; ``None`` where no such row was joined."""
        if row[0] is None:
            return None
        values = list(row)
        for place, convert in self.converters:
            values[place] = convert(values[place], None, connection)
        return self.model.from_db(connection.alias, self.names, values)


PARTS = (Part(Run, "taken"), Part(Artifact, "artifacts_artifact"), Part(Blob, "artifacts_blob"))


def claimable(kinds: Collection[str], among: Q = EVERYTHING) -> QuerySet[Run]:
    """Queued runs ``among`` those that a host with devices of ``kinds`` may take, in their order."""
    ready = Q(after=None) | Q(after__state=Run.State.SUCCEEDED)
    due = Q(not_before=None) | Q(not_before__lte=Now())
    found = Run.objects.filter(ready, due, among, state=Run.State.QUEUED, needs__in=["", *kinds])
    return found.order_by(*turns.ORDER)


@dataclass(frozen=True)
class Statement:
    """A statement that ``text`` has a connection prepare under ``name``."""

    name: str
    text: str


#: Names of what each connection has prepared, for as long as it lasts.
_prepared: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()


@functools.lru_cache(CHOICES)
def _statement(host: str, kinds: tuple[str, ...], among: Q) -> Statement:
    """How a host takes the next run."""
    for_it = ~Q(spec__has_key=turns.HOST) | Q(**{f"spec__{turns.HOST}": host})
    query, about = claimable(kinds, among & for_it).values("pk")[:1].query.sql_with_params()
    with connection.cursor() as cursor:
        first = cursor.mogrify(query, about)
    name = f"claim_{hashlib.sha256(first.encode()).hexdigest()[:16]}"
    return Statement(name, TAKE.format(name=name, first=first, columns=", ".join(p.columns for p in PARTS)))


def _prepare(cursor: Any, statement: Statement) -> None:
    known = _prepared.setdefault(cursor.connection, set())
    if statement.name not in known:
        cursor.execute(statement.text)
        known.add(statement.name)


def take_next(host: Host, kinds: Collection[str], tier: str, lease: float, among: Q) -> Run | None:
    """Write that ``host`` has the next run for ``lease`` seconds; the run with its artifact and blob."""
    statement = _statement(host.name, tuple(sorted(kinds)), among)
    with connection.cursor() as cursor:
        _prepare(cursor, statement)
        cursor.execute(f"EXECUTE {statement.name} (%s, %s, %s)", [host.pk, tier, lease])
        row = cursor.fetchone()
    return _run_of(row) if row else None


def _run_of(row: Sequence[Any]) -> Run:
    """The run of a row, with its artifact and blob as if they had been selected with it."""
    found, begin = [], 0
    for part in PARTS:
        end = begin + len(part.fields)
        found.append(part.instance(row[begin:end]))
        begin = end
    run, artifact, blob = found
    run.artifact = artifact
    if artifact is not None:
        artifact.blob = blob
    taken: Run = run
    return taken
