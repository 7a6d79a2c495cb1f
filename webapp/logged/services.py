"""Logs of programs as they come: stored to the byte, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.http import Http404
from django.utils import timezone

from experiments.core.errors import BadInput
from webapp.accounts.models import Project, User
from webapp.artifacts.models import Artifact
from webapp.history.models import RunTag
from webapp.logged import points, shown
from webapp.logged.models import LoggedRun, Series
from webapp.logged.records import Beginning, End, Records, read_records
from webapp.runs.models import Experiment, Run, RunMetric

MOST_SERIES = 2000
#: Who says nothing for so long is given up; what it says later is taken all the same.
SILENCE = timedelta(hours=6)
SILENT = "nothing was heard of it for six hours; whatever it logged since is taken when it comes"

Points = Mapping[str, list[tuple[int, float, float]]]
COLUMNS = ("names", "counts", "broken", "firsts", "lasts", "last", "least", "largest")


@dataclass(frozen=True)
class Place:
    """Who logs: somebody of the team of that id, and for a new run into which project."""

    team: int
    user: User | None
    project: Callable[[], Project]


#: Adds points to what is known of their series, and says the last values as the run's figures.
STORE_SERIES = f"""
    WITH stored AS (
        INSERT INTO logged_series AS known
            (logged_id, name, count, broken, first_step, last_step, last, least, largest)
        SELECT %(run)s, * FROM unnest(
            %(names)s::text[], %(counts)s::bigint[], %(broken)s::bigint[], %(firsts)s::bigint[],
            %(lasts)s::bigint[], %(last)s::float8[], %(least)s::float8[], %(largest)s::float8[]
        )
        ON CONFLICT (logged_id, name) DO UPDATE SET
            count = known.count + excluded.count,
            broken = known.broken + excluded.broken,
            first_step = least(known.first_step, excluded.first_step),
            last_step = greatest(known.last_step, excluded.last_step),
            last = coalesce(excluded.last, known.last),
            least = least(known.least, excluded.least),
            largest = greatest(known.largest, excluded.largest)
        RETURNING name, id, last, xmax = 0 AS is_new
    ), figures AS (
        INSERT INTO {RunMetric._meta.db_table} (run_id, name, value)
        SELECT %(run)s, name, last FROM stored WHERE last IS NOT NULL
        ON CONFLICT (run_id, name) DO UPDATE SET value = excluded.value
    )
    SELECT name, id, is_new FROM stored
"""


class Apart(Exception):
    """What was sent does not begin where the stored part ends, at ``offset``."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"the log is stored up to byte {offset}")
        self.offset = offset


@dataclass(frozen=True)
class Stored:
    """How a run stands: ``offset`` bytes of its log are stored, ``stop``: somebody asked it to end."""

    run: UUID
    offset: int = 0
    has_ended: bool = False
    state: str = Run.State.RUNNING
    stop: bool = False
    is_new: bool = False


@transaction.atomic
def append(place: Place, run: UUID, offset: int, body: bytes) -> Stored:
    """Store the lines ``body`` of the log of ``run`` that begin at its byte ``offset``.

    Lines that are stored already change nothing. ``Apart`` where some between are missing, ``Http404`` for a
    run of another team, ``BadInput`` for lines that cannot be read.
    """
    found, now = _find(place.team, run), timezone.now()
    if not found.is_new and offset + len(body) <= found.offset:
        LoggedRun.objects.filter(pk=run).update(heard_at=now)
        return found
    if offset != found.offset:
        raise Apart(found.offset)
    if found.has_ended:
        raise BadInput("the log of this run has ended", "body", "a run of its own for what comes now")
    told = read_records(body, is_first=found.is_new)
    if told.begin is not None:
        _begin(place.project(), place.user, run, told.begin)
    stored = replace(found, offset=offset + len(body), has_ended=told.end is not None, is_new=False)
    LoggedRun.objects.filter(pk=run).update(offset=stored.offset, heard_at=now, has_ended=stored.has_ended)
    _store_points(run, told.points, now)
    shown.store(run, told.tables, told.images)
    _put_tags(run, told.tags, place.user)
    return replace(stored, state=_move(stored, told, now))


def _find(team: int, run: UUID) -> Stored:
    """How the run stands, which nobody else writes of until this transaction ends."""
    rows = LoggedRun.objects.filter(pk=run).select_for_update(of=("self",))
    known = rows.values_list(
        "run__project__team", "offset", "has_ended", "run__state", "run__cancel_requested"
    )
    if not (row := known.first()):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [str(run)])
        if not (row := known.first()) and not Run.everything.filter(pk=run).exists():
            return Stored(run, is_new=True)
    if row is None or row[0] != team:
        raise Http404("there is no such run")
    return Stored(run, *row[1:])


def _begin(project: Project, owner: User | None, run: UUID, told: Beginning) -> None:
    """A run in the newest experiment of that name that has logged runs, else in a new one."""
    Project.objects.select_for_update().get(pk=project.pk)
    wanted = {"project": project, "name": told.experiment, "is_logged": True}
    experiment = Experiment.objects.not_trashed().filter(**wanted).first()
    if experiment is None:
        experiment = Experiment.objects.create(**wanted, created_by=owner)
    made = Run.objects.create(
        id=run,
        project=project,
        experiment=experiment,
        owner=owner,
        kind=Run.Kind.LOGGED,
        spec={"knobs": dict(told.params)},
        policy=told.name,
        hardware=told.hardware,
        mode="measured",
        seed=told.seed,
        state=Run.State.RUNNING,
        started_at=told.started,
    )
    Run.objects.filter(pk=run).update(queued_at=min(told.started, made.queued_at))
    _put_tags(run, told.tags, owner)
    LoggedRun.objects.create(run=made, environment=dict(told.environment), diff=told.diff)


def _put_tags(run: UUID, tags: Sequence[str], owner: User | None) -> None:
    made = [RunTag(run_id=run, name=name, by=owner) for name in tags]
    RunTag.objects.bulk_create(made, ignore_conflicts=True)


def _store_points(run: UUID, found: Points, now: datetime) -> None:
    if not found:
        return
    rows = [_summary(name, points) for name, points in found.items()]
    columns = dict(zip(COLUMNS, (list(column) for column in zip(*rows, strict=True)), strict=True))
    with connection.cursor() as cursor:
        cursor.execute(STORE_SERIES, {"run": run, **columns})
        stored = cursor.fetchall()
    if any(is_new for _, _, is_new in stored) and Series.objects.filter(logged=run).count() > MOST_SERIES:
        raise BadInput("the run has too many figures", "body", f"at most {MOST_SERIES} names")
    ids = {name: series for name, series, _ in stored}
    points.append(((ids[name], *point) for name, rows in found.items() for point in rows), now)


def _summary(name: str, points: list[tuple[int, float, float]]) -> tuple[object, ...]:
    steps = [step for step, _, _ in points]
    finite = [value for _, _, value in points if abs(value) < float("inf")]
    ends = (finite[-1], min(finite), max(finite)) if finite else (None, None, None)
    return (name, len(points), len(points) - len(finite), min(steps), max(steps), *ends)


def _move(stored: Stored, found: Records, now: datetime) -> str:
    """The run's state from now on. One that was given up and is heard again goes on."""
    told: dict[str, Any] = {}
    if found.progress is not None:
        told |= {"progress": found.progress[0], "progress_step": found.progress[1], "progress_at": now}
    if found.end is not None:
        told |= _ending(found.end)
    elif stored.state != Run.State.RUNNING:
        told |= {"state": Run.State.RUNNING, "reason": "", "finished_at": None}
    if told:
        Run.everything.filter(pk=stored.run).update(**told)
    return str(told.get("state", stored.state))


def _ending(end: End) -> dict[str, Any]:
    done = {"progress": 1.0} if end.state == Run.State.SUCCEEDED else {}
    return {"state": end.state, "reason": end.reason, "finished_at": end.at, **done}


def attach(logged: LoggedRun, artifact: Artifact) -> None:
    """A file of the team that the run made or used."""
    logged.files.add(artifact)


@transaction.atomic
def give_up_silent(now: datetime) -> int:
    """Ends the runs that nothing was heard of for ``SILENCE``; how many they were."""
    silent = LoggedRun.objects.filter(heard_at__lt=now - SILENCE, run__state=Run.State.RUNNING)
    runs = Run.objects.filter(pk__in=silent.values("pk"), state=Run.State.RUNNING)
    return runs.update(state=Run.State.FAILED, reason=SILENT, finished_at=now)
