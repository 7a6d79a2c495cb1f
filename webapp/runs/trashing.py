"""Runs into the trash and out of it: those that somebody chose, and those that a project keeps no longer."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import BigIntegerField, F, Func, Q, QuerySet, Sum

from webapp.accounts.models import Project, User
from webapp.runs.models import Experiment, Run, RunDocument, TrashedRuns

#: Runs that go into the trash, or are deleted, by one statement.
MOST_AT_ONCE = 10_000
CHUNK = 1000
#: How often a project's rule puts runs into the trash.
EVERY = timedelta(days=1)


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


def take_back(trashed: TrashedRuns) -> None:
    trashed.delete()


def delete_for_good(trashed: TrashedRuns) -> None:
    """The runs with all that hangs on them, a part at a time."""
    there = Run.everything.filter(trash=trashed)
    while chunk := list(there.values_list("pk", flat=True)[:CHUNK]):
        Run.everything.filter(pk__in=chunk).delete()
    trashed.delete()


def bytes_by_batch(team: int) -> dict[int, int]:
    """What the results of a team's trashed runs take in the database, as they are stored, by what they went
    into the trash with.
    """
    stored = Func(F("outcome"), function="pg_column_size", output_field=BigIntegerField())
    documents = RunDocument.objects.filter(run__trash__project__team=team).order_by()
    return dict(documents.values("run__trash").annotate(bytes=Sum(stored)).values_list("run__trash", "bytes"))


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
