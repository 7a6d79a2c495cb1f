"""Which queued run a worker takes next, and the one statement that takes it.

The choice is a query like any other; it is compiled once for a host and asked with each claim as a part of
the statement that writes the claim and reads the run with its file.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

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
TAKE = """
WITH taken AS (
    UPDATE runs_run SET state = 'running', attempt = attempt + 1, host_id = %s, sandbox_tier = %s,
        lease_until = statement_timestamp() + %s * interval '1 second', heartbeat_at = statement_timestamp(),
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

    def instance(self, row: Sequence[Any]) -> Any:
        """The model of a row's part; ``None`` where no such row was joined."""
        if row[0] is None:
            return None
        names, values = [], []
        for field, value in zip(self.fields, row, strict=True):
            for convert in field.get_db_converters(connection):
                value = convert(value, None, connection)
            names.append(field.attname)
            values.append(value)
        return self.model.from_db(connection.alias, names, values)


PARTS = (Part(Run, "taken"), Part(Artifact, "artifacts_artifact"), Part(Blob, "artifacts_blob"))


def claimable(kinds: Collection[str], among: Q = EVERYTHING) -> QuerySet[Run]:
    """Queued runs ``among`` those that a host with devices of ``kinds`` may take, in their order."""
    ready = Q(after=None) | Q(after__state=Run.State.SUCCEEDED)
    due = Q(not_before=None) | Q(not_before__lte=Now())
    found = Run.objects.filter(ready, due, among, state=Run.State.QUEUED, needs__in=["", *kinds])
    return found.order_by(*turns.ORDER)


@functools.lru_cache(CHOICES)
def _statement(host: str, kinds: tuple[str, ...], among: Q) -> tuple[str, tuple[Any, ...]]:
    """How a host takes the next run, and what the choice in it is about."""
    for_it = ~Q(spec__has_key=turns.HOST) | Q(**{f"spec__{turns.HOST}": host})
    first, about = claimable(kinds, among & for_it).values("pk")[:1].query.sql_with_params()
    return TAKE.format(first=first, columns=", ".join(part.columns for part in PARTS)), about


def take_next(host: Host, kinds: Collection[str], tier: str, lease: float, among: Q) -> Run | None:
    """Write that ``host`` has the next run for ``lease`` seconds; the run with its artifact and blob."""
    statement, about = _statement(host.name, tuple(sorted(kinds)), among)
    with connection.cursor() as cursor:
        cursor.execute(statement, [host.pk, tier, lease, *about])
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
