"""Runs into the trash and out of it: those that somebody chose, and those that a project keeps no longer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from auditlog.context import disable_auditlog
from auditlog.models import LogEntry
from django.db import transaction
from django.db.models import BigIntegerField, F, Func, Q, QuerySet, Sum

from webapp.accounts.models import Project, User
from webapp.history import services as history
from webapp.logged import points
from webapp.logged.models import LoggedImage, LoggedTable
from webapp.runs.models import Experiment, Run, RunDocument, RunQuerySet, TrashedRuns

#: Runs that go into the trash, or are deleted, by one statement.
MOST_AT_ONCE = 10_000
CHUNK = 1000
#: How often a project's rule puts runs into the trash.
EVERY = timedelta(days=1)
#: The tag of runs that were taken back from what a project's rule put into the trash.
KEPT = "kept"
#: What takes room in the database with a run besides its points: the model, its column, how it names the run.
STORED = (
    (RunDocument, "outcome", "run"),
    (LoggedTable, "rows", "logged__run"),
    (LoggedImage, "data", "logged__run"),
)


@transaction.atomic
def put_into_trash(
    project: Project, runs: QuerySet[Run], by: User | None, why: str = ""
) -> TrashedRuns | None:
    """Those of the runs that have ended, together; ``None`` where none of them has."""
    ended = runs.filter(project=project, state__in=Run.FINAL).order_by().values("pk")[:MOST_AT_ONCE]
    chosen = [row["pk"] for row in ended]
    if not chosen:
        return None
    made = TrashedRuns.objects.create(project=project, by=by, why=why, count=len(chosen))
    made.count = Run.objects.filter(pk__in=chosen).update(trash=made)
    if not made.count:  # somebody else was faster
        made.delete()
        return None
    made.save(update_fields=["count"])
    return made


def say_are(trashed: TrashedRuns) -> str:
    return f"{trashed} is" if trashed.count == 1 else f"{trashed} are"


def is_by_rule(trashed: TrashedRuns) -> bool:
    """Whether the project's rule put the runs there, and no person."""
    return bool(trashed.why) and trashed.by_id is None


@transaction.atomic
def take_back(trashed: TrashedRuns, by: User | None) -> None:
    """The runs are back. Those that a rule put there are tagged, or it would put them there again at once."""
    if is_by_rule(trashed):
        history.tag(Run.everything.filter(trash=trashed), KEPT, by)
    since = [trashed.trashed_at.isoformat(timespec="seconds"), "None"]
    LogEntry.objects.log_create(trashed, action=LogEntry.Action.UPDATE, changes={"trashed_at": since})
    with disable_auditlog():  # that the row goes would read as if the runs were deleted
        trashed.delete()


def delete_some(runs: QuerySet[Run]) -> bool:
    """Delete ``CHUNK`` of the runs for good with all that hangs on them; whether there were any.

    What had gone into the trash with some of them says how many are left.
    """
    chunk = list(runs.order_by().values_list("pk", flat=True)[:CHUNK])
    with transaction.atomic():
        found = Run.everything.filter(pk__in=chunk)
        batches = list(found.exclude(trash=None).order_by().values_list("trash", flat=True).distinct())
        found.delete()
        for batch in batches:
            left = Run.everything.filter(trash=batch).count()
            TrashedRuns.objects.filter(pk=batch).update(count=left)
    return bool(chunk)


def delete_experiment(experiment: Experiment) -> None:
    """The experiment, whose runs are gone, with what has gone into the trash and holds none any more."""
    for batch in TrashedRuns.objects.filter(project=experiment.project, count=0):
        batch.delete()
    experiment.delete()


def bytes_of_runs(by: str, things: QuerySet[Any]) -> dict[Any, int]:
    """What the runs of each of the things take in the database, as it is stored; ``by`` is their column."""
    found = Counter(points.bytes_by(by, things.values_list("pk", flat=True)))
    for model, column, run in STORED:
        size = Func(F(column), function="pg_column_size", output_field=BigIntegerField())
        rows = model.objects.filter(**{f"{run}__{by}__in": things}).order_by().values(f"{run}__{by}")
        found.update(dict(rows.annotate(taken=Sum(size)).values_list(f"{run}__{by}", "taken")))
    return found


def leave_out_trashed_experiments(runs: RunQuerySet, projects: Iterable[Project | int]) -> RunQuerySet:
    """The runs of the projects without those whose experiment is in the trash."""
    there = Experiment.objects.filter(project__in=projects, trashed_at__isnull=False)
    thrown = list(there.order_by().values_list("pk", flat=True))
    return runs.exclude(experiment__in=thrown) if thrown else runs


def unmarked_runs(project: Project, before: datetime) -> QuerySet[Run]:
    """Runs that ended before then and that nobody marked: no tag, note or comment, no baseline of an
    experiment, no run of a night.
    """
    pinned = Experiment.objects.filter(project=project, pinned__isnull=False).values("pinned")
    marked = Q(tags__isnull=False) | Q(note__isnull=False) | Q(comments__isnull=False) | Q(pk__in=pinned)
    old = Run.objects.filter(project=project, kind__in=Run.RECORDED, finished_at__lt=before)
    return old.exclude(marked).filter(experiment__night=None)


def keep_no_longer(project: Project, now: datetime) -> int:
    """Once a day, puts the runs into the trash that ended longer ago than they are kept; how many."""
    if project.keep_runs_days is None:
        return 0
    why = f"older than {project.keep_runs_days} days"
    if project.trashed_runs.filter(by=None, why=why, trashed_at__gt=now - EVERY).exists():
        return 0
    old = unmarked_runs(project, now - timedelta(days=project.keep_runs_days))
    trashed = put_into_trash(project, old, None, why)
    return trashed.count if trashed else 0
