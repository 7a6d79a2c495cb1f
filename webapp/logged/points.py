"""Points of series: a table of its own, partitioned by the month in which they came.

A partition is made when its first point comes. Months that ended a while ago are packed: the points of a
series become one row of arrays, which Postgres compresses, and the partition goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.db import connection, transaction

#: A key of Postgres' advisory locks: one at a time makes or packs partitions.
PARTITIONS = 0x10661E5
#: Partitions that this process has seen, once what made them was committed.
_MADE: set[str] = set()
#: How long points stay as they came (days after the end of their month).
FRESH = 30

ALL_POINTS = """
    SELECT series, step, at, value FROM logged_point WHERE series = ANY(%(series)s)
    UNION ALL
    SELECT packed.series, point.step, point.at, point.value
    FROM logged_packed AS packed, unnest(packed.steps, packed.at, packed.value) AS point(step, at, value)
    WHERE packed.series = ANY(%(series)s)
"""
#: Bytes of a point's row as it came, with what Postgres keeps of each.
ROW = 64
#: What points take as they are stored, by what their runs belong to; what is packed is less.
BYTES = """
    SELECT run.{column}_id, sum((one.count - coalesce(packed.count, 0)) * %(row)s
        + coalesce(packed.bytes, 0))::bigint
    FROM runs_run AS run JOIN logged_series AS one ON one.logged_id = run.id LEFT JOIN LATERAL (
        SELECT sum(cardinality(steps)) AS count,
            sum(pg_column_size(steps) + pg_column_size(at) + pg_column_size(value)) AS bytes
        FROM logged_packed WHERE series = one.id
    ) AS packed ON true
    WHERE run.{column}_id = ANY(%(things)s) GROUP BY 1
"""
#: NaN is the largest number to Postgres.
FINITE = "value > '-Infinity' AND value < 'Infinity'"


@dataclass
class Points:
    """Columns of the points of a series, by step; ``at`` in seconds since 1970."""

    steps: list[int] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


@dataclass
class Stretches:
    """A series in stretches of equally many steps: the first step and moment of each, and the mean, least
    and largest of its finite values; ``None`` where it has none.
    """

    steps: list[int] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    mean: list[float | None] = field(default_factory=list)
    least: list[float | None] = field(default_factory=list)
    largest: list[float | None] = field(default_factory=list)


def append(rows: Iterable[tuple[int, int, float, float]], now: datetime) -> None:
    """Store points (series, step, moment, value) that came ``now``; inside a transaction."""
    with connection.cursor() as cursor:
        _make_partition(now.astimezone(UTC).date().replace(day=1))
        columns = "COPY logged_point (series, step, at, value, received) FROM STDIN"
        moment = now.isoformat()
        with cursor.copy(columns) as copy:
            copy.write("".join(f"{s}\t{step}\t{at!r}\t{value!r}\t{moment}\n" for s, step, at, value in rows))


def read(series: Sequence[int]) -> dict[int, Points]:
    """Every point of each of ``series`` by their ids, in order of steps."""
    found = {one: Points() for one in series}
    with connection.cursor() as cursor:
        cursor.execute(f"{ALL_POINTS} ORDER BY 1, 2, 3", {"series": list(series)})
        for one, step, at, value in cursor.fetchall():
            points = found[one]
            points.steps.append(step)
            points.at.append(at)
            points.values.append(value)
    return found


def read_stretches(series: Sequence[int], most: int) -> dict[int, Stretches]:
    """Each of ``series`` by their ids in up to ``most`` stretches; short ones come point by point."""
    found = {one: Stretches() for one in series}
    steps = "one.last_step - one.first_step + 1"
    stretch = f"(step - one.first_step)::float8 * %(most)s / greatest({steps}, %(most)s)"
    query = f"""
        SELECT series, min(step), min(at), avg(value) FILTER (WHERE {FINITE}),
               min(value) FILTER (WHERE {FINITE}), max(value) FILTER (WHERE {FINITE})
        FROM ({ALL_POINTS}) AS point JOIN logged_series AS one ON one.id = point.series
        GROUP BY series, floor({stretch}) ORDER BY 1, 2
    """
    with connection.cursor() as cursor:
        cursor.execute(query, {"series": list(series), "most": most})
        for one, step, at, *values in cursor.fetchall():
            stretches = found[one]
            stretches.steps.append(step)
            stretches.at.append(at)
            for column, value in zip(
                (stretches.mean, stretches.least, stretches.largest), values, strict=True
            ):
                column.append(value)
    return found


def bytes_by(column: str, things: Iterable[Any]) -> dict[Any, int]:
    """What the points of runs take as they are stored, by each of ``things`` that runs have as ``column``
    (``project``, ``experiment``, ``trash``); nothing of those whose runs have no points.
    """
    with connection.cursor() as cursor:
        cursor.execute(BYTES.format(column=column), {"row": ROW, "things": list(things)})
        return dict(cursor.fetchall())


def pack(today: date) -> list[str]:
    """Pack every month that ended more than ``FRESH`` days before ``today``; say which partitions went."""
    packed = []
    for month in _months():
        if _following(month) + timedelta(days=FRESH) <= today:
            packed.append(_pack_month(month))
    return packed


@transaction.atomic
def _pack_month(month: date) -> str:
    name = _partition(month)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [PARTITIONS])
        cursor.execute(
            f"""
            INSERT INTO logged_packed (series, month, steps, at, value)
            SELECT series, %s, array_agg(step ORDER BY step, at), array_agg(at ORDER BY step, at),
                   array_agg(value ORDER BY step, at)
            FROM {name} GROUP BY series
            """,
            [month],
        )
        cursor.execute(f"DROP TABLE {name}")
    return name


def _months() -> list[date]:
    """The first days of the months that have partitions."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'logged_point'::regclass"
        )
        names = [name for (name,) in cursor.fetchall()]
    return sorted(date.fromisoformat(name.removeprefix("logged_point_").replace("_", "-")) for name in names)


def _make_partition(month: date) -> None:
    name = _partition(month)
    if name in _MADE:
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass(%s)", [name])
        if cursor.fetchone() != (None,):
            transaction.on_commit(lambda: _MADE.add(name))
            return
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [PARTITIONS])
        cursor.execute(
            f"CREATE TABLE IF NOT EXISTS {name} PARTITION OF logged_point"
            f" FOR VALUES FROM ('{month} 00:00:00+00') TO ('{_following(month)} 00:00:00+00')"
        )


def _partition(month: date) -> str:
    return f"logged_point_{month:%Y_%m_%d}"


def _following(month: date) -> date:
    return (month + timedelta(days=32)).replace(day=1)
