"""Logs of programs as they come: stored to the byte, once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection, transaction
from django.http import Http404
from django.utils import timezone

from experiments.core.errors import BadInput
from webapp.accounts.models import Project, User
from webapp.artifacts.models import Artifact
from webapp.history.models import RunTag
from webapp.logged import points
from webapp.logged.models import LoggedRun, Series
from webapp.logged.records import Beginning, End, Records, read_records
from webapp.runs.models import Experiment, Run, RunMetric

MOST_SERIES = 2000
#: Who says nothing for so long is given up; what it says later is taken all the same.
SILENCE = timedelta(hours=6)
SILENT = "nothing was heard of it for six hours; whatever it logged since is taken when it comes"

Points = Mapping[str, list[tuple[int, float, float]]]

STORE_SERIES = """
    INSERT INTO logged_series
        (logged_id, name, count, broken, first_step, last_step, last, least, largest)
    SELECT %s, * FROM unnest(
        %s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[],
        %s::float8[], %s::float8[], %s::float8[]
    )
    ON CONFLICT (logged_id, name) DO UPDATE SET
        count = logged_series.count + excluded.count,
        broken = logged_series.broken + excluded.broken,
        first_step = least(logged_series.first_step, excluded.first_step),
        last_step = greatest(logged_series.last_step, excluded.last_step),
        last = coalesce(excluded.last, logged_series.last),
        least = least(logged_series.least, excluded.least),
        largest = greatest(logged_series.largest, excluded.largest)
    RETURNING name, id
"""


class Apart(Exception):
    """What was sent does not begin where the stored part ends, at ``offset``."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"the log is stored up to byte {offset}")
        self.offset = offset


@transaction.atomic
def append(project: Project, owner: User | None, run: UUID, offset: int, body: bytes) -> LoggedRun:
    """Store the lines ``body`` of the log of ``run`` that begin at its byte ``offset``.

    Lines that are stored already change nothing. ``Apart`` where some between are missing, ``Http404`` for a
    run of another team, ``BadInput`` for lines that cannot be read.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [str(run)])
    logged = _find(project, run)
    kept, now = logged.offset if logged else 0, timezone.now()
    if logged and offset + len(body) <= kept:
        LoggedRun.objects.filter(pk=run).update(heard_at=now)
        return logged
    if offset != kept:
        raise Apart(kept)
    if logged and logged.has_ended:
        raise BadInput("the log of this run has ended", "body", "a run of its own for what comes now")
    found = read_records(body, is_first=logged is None)
    if logged is None:
        assert found.begin is not None
        logged = _begin(project, owner, run, found.begin)
    logged.offset, logged.heard_at = kept + len(body), now
    logged.has_ended = found.end is not None
    logged.save()
    _store_points(logged, found.points, now)
    _put_tags(logged.run, found.tags, owner)
    _move(logged.run, found, now)
    return logged


def _find(project: Project, run: UUID) -> LoggedRun | None:
    known = Run.objects.select_related("project", "logged").filter(pk=run).first()
    if known is None:
        return None
    if known.project.team_id != project.team_id or known.kind != Run.Kind.LOGGED:
        raise Http404("there is no such run")
    return known.logged


def _begin(project: Project, owner: User | None, run: UUID, told: Beginning) -> LoggedRun:
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
    _put_tags(made, told.tags, owner)
    return LoggedRun.objects.create(run=made, environment=dict(told.environment), diff=told.diff)


def _put_tags(run: Run, tags: list[str] | tuple[str, ...], owner: User | None) -> None:
    RunTag.objects.bulk_create([RunTag(run=run, name=name, by=owner) for name in tags], ignore_conflicts=True)


def _store_points(logged: LoggedRun, found: Points, now: datetime) -> None:
    if not found:
        return
    ids = _store_series(logged, found)
    if Series.objects.filter(logged=logged).count() > MOST_SERIES:
        raise BadInput("the run has too many figures", "body", f"at most {MOST_SERIES} names")
    points.append(((ids[name], *point) for name, rows in found.items() for point in rows), now)
    last = Series.objects.filter(pk__in=ids.values()).values_list("name", "last")
    metrics = [RunMetric(run=logged.run, name=name, value=value) for name, value in last if value is not None]
    RunMetric.objects.bulk_create(
        metrics, update_conflicts=True, unique_fields=["run", "name"], update_fields=["value"]
    )


def _store_series(logged: LoggedRun, found: Points) -> dict[str, int]:
    """Adds the points to what is known of their series; the ids of these by name."""
    rows = [_summary(name, points) for name, points in found.items()]
    with connection.cursor() as cursor:
        cursor.execute(STORE_SERIES, [logged.pk, *(list(column) for column in zip(*rows, strict=True))])
        return dict(cursor.fetchall())


def _summary(name: str, points: list[tuple[int, float, float]]) -> tuple[object, ...]:
    steps = [step for step, _, _ in points]
    finite = [value for _, _, value in points if abs(value) < float("inf")]
    ends = (finite[-1], min(finite), max(finite)) if finite else (None, None, None)
    return (name, len(points), len(points) - len(finite), min(steps), max(steps), *ends)


def _move(run: Run, found: Records, now: datetime) -> None:
    """The run's state and progress. One that was given up and is heard again goes on."""
    told: dict[str, object] = {"progress_at": now}
    if found.progress is not None:
        told |= {"progress": found.progress[0], "progress_step": found.progress[1]}
    if found.end is not None:
        told |= _ending(found.end)
    elif run.state != Run.State.RUNNING:
        told |= {"state": Run.State.RUNNING, "reason": "", "finished_at": None}
    Run.objects.filter(pk=run.pk).update(**told)


def _ending(end: End) -> dict[str, object]:
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
