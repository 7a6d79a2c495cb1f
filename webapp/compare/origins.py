"""What the figures of a comparison do not share though nobody asked for it: code, torch, and the host where
they are measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db import connection

from webapp.compare.comparison import Comparison

#: Digits of a revision that tell it from others.
DIGITS = 12
MEASURED = "measured"
#: A document is long: it is unpacked once, and only this part of it is looked into.
ORIGINS = """
SELECT run_id, left(told ->> 'revision', %s), told #>> '{versions,torch}', told #>> '{host,name}' FROM (
    SELECT run_id, outcome -> 'provenance' AS told FROM runs_rundocument WHERE run_id = ANY(%s) OFFSET 0
) AS document
"""


@dataclass(frozen=True)
class Origin:
    """Something of which the runs have several: each value with the number of its runs, most first."""

    name: str
    values: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return f"{self.name} {', '.join(f'{value} in {count}' for value, count in self.values)}"


def differing_origins(comparison: Comparison) -> tuple[Origin, ...]:
    """In what the runs with an outcome differ; hosts count among those that are measured."""
    runs = [run for entry in comparison.entries if entry.has_page for run in entry.runs]
    measured = {run.pk for run in runs if run.mode == MEASURED}
    rows = _rows([run.pk for run in runs])
    columns = {
        "revision": [revision for _, revision, _, _ in rows],
        "torch": [torch for _, _, torch, _ in rows],
        "host": [host for run, _, _, host in rows if run in measured],
    }
    return tuple(_several(columns.items()))


def _rows(runs: Sequence[UUID]) -> list[tuple[UUID, str | None, str | None, str | None]]:
    with connection.cursor() as cursor:
        cursor.execute(ORIGINS, [DIGITS, list(runs)])
        return list(cursor.fetchall())


def _several(columns: Iterable[tuple[str, list[str | None]]]) -> Iterator[Origin]:
    for name, values in columns:
        counted = Counter(value for value in values if value)
        if len(counted) > 1:
            yield Origin(name, tuple(counted.most_common()))
