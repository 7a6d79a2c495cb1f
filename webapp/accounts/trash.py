"""The trash of a team: what was put there, taking it back, and what becomes of it after the days of
retention.

A run outlives the artifact that it used: its outcome names the workload and the hash. Bytes go when nothing
names them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.files.storage import default_storage
from django.db import transaction
from django.db.models import Aggregate, Count, Exists, OuterRef, QuerySet, Sum
from django.http import Http404
from django.utils import timezone

from webapp.accounts.models import Project, Team, User
from webapp.artifacts.models import Artifact, Blob, Upload
from webapp.runs import trashing
from webapp.runs.models import Experiment, Run, TrashedRuns

#: Bytes that are younger stay, named or not.
SETTLED = timedelta(days=1)
#: What can be in the trash, by the word for it.
KINDS: Mapping[str, Any] = {
    "project": Project,
    "experiment": Experiment,
    "artifact": Artifact,
    "runs": TrashedRuns,
}
#: How runs name what is in the trash with them.
RUNS_BY: Mapping[str, str] = {"project": "project", "experiment": "experiment", "runs": "trash"}


@dataclass(frozen=True)
class Trashed:
    """``size``: bytes that go with it."""

    kind: str
    key: str
    name: str
    project: str
    trashed_at: datetime
    size: int = 0

    @property
    def gone_at(self) -> datetime:
        """When it is deleted for good."""
        return self.trashed_at + timedelta(days=settings.TRASH_DAYS)


def list_trash(team: Team) -> list[Trashed]:
    """Newest first."""
    found = [one for kind in KINDS for one in _list_kind(kind, team)]
    return sorted(found, key=lambda one: one.trashed_at, reverse=True)


def _list_kind(kind: str, team: Team) -> Iterator[Trashed]:
    things = _in_trash(kind, team)
    of_runs = trashing.bytes_of_runs(RUNS_BY[kind], things) if kind in RUNS_BY else {}
    of_files = _bytes_of_files(kind, things)
    for thing in things:
        size = of_runs.get(thing.pk, 0) + of_files.get(thing.pk, 0)
        yield Trashed(kind, str(thing.pk), str(thing), str(_project(thing)), thing.trashed_at, size)


def _in_trash(kind: str, team: Team) -> QuerySet[Any]:
    things: QuerySet[Any] = KINDS[kind].objects.filter(trashed_at__isnull=False)
    if kind == "project":
        return things.filter(team=team)
    return things.filter(project__team=team).select_related("project")


def _project(thing: Any) -> Project:
    return thing if isinstance(thing, Project) else thing.project


def _bytes_of_files(kind: str, things: QuerySet[Any]) -> Mapping[int, int]:
    """The file of each artifact, and all files of each project."""
    if kind == "artifact":
        return dict(things.exclude(blob=None).values_list("pk", "blob__size"))
    return _file_bytes(Artifact.objects.filter(project__in=things)) if kind == "project" else {}


def _find(team: Team, kind: str, key: str) -> Any:
    """The thing in the team's trash, or 404."""
    try:
        found = _in_trash(kind, team).filter(pk=key).first() if kind in KINDS else None
    except (ValueError, ValidationError):
        found = None
    if found is None:
        raise Http404("nothing like it is in the trash of this team")
    return found


@transaction.atomic
def restore(team: Team, kind: str, key: str, by: User) -> str:
    """Takes it back and says so; ``ValidationError`` while its project is in the trash too."""
    found = _find(team, kind, key)
    if kind != "project" and found.project.trashed_at is not None:
        raise ValidationError(
            f"{found} is of the project {found.project}, which is in the trash: restore that first"
        )
    said = f"{_say_is(found)} back"
    if isinstance(found, TrashedRuns):
        kept = f", tagged {trashing.KEPT} so that the project's rule leaves them there"
        said += kept if trashing.is_by_rule(found) else ""
        trashing.take_back(found, by)
    else:
        found.trashed_at = None
        found.save(update_fields=["trashed_at"])
    return f"{said}."


def _say_is(thing: Any) -> str:
    return trashing.say_are(thing) if isinstance(thing, TrashedRuns) else f"{thing} is"


@transaction.atomic
def delete(team: Team, kind: str, key: str) -> str:
    """Deletes it for good, before its time, and says so."""
    found = _find(team, kind, key)
    said = f"{_say_is(found)} deleted for good."
    DELETE[kind](found)
    _drop_unnamed_bytes()
    return said


@transaction.atomic
def apply_retention(team: Team, now: datetime) -> int:
    """Deletes what has been in the team's trash for longer than ``TRASH_DAYS``; says how many things.

    Then runs that a project keeps no longer go into it.
    """
    before = now - timedelta(days=settings.TRASH_DAYS)
    old = [(kind, thing) for kind in KINDS for thing in _in_trash(kind, team).filter(trashed_at__lt=before)]
    for kind, thing in old:
        if KINDS[kind].objects.filter(pk=thing.pk).exists():
            DELETE[kind](thing)
    if old:
        _drop_unnamed_bytes()
    for project in team.projects.filter(trashed_at=None, keep_runs_days__isnull=False):
        trashing.keep_no_longer(project, now)
    return len(old)


def apply_retention_everywhere(now: datetime) -> int:
    """For every team, each in a transaction of its own: one that fails later takes nothing back from the
    others.
    """
    return sum(apply_retention(team, now) for team in Team.objects.order_by("pk"))


def _delete_artifact(artifact: Artifact) -> None:
    family = [artifact.pk, *artifact.derived.values_list("pk", flat=True)]
    Run.everything.filter(artifact__in=family, kind=Run.Kind.POLICY).update(artifact=None)
    artifact.delete()


def _delete(thing: Any) -> None:
    thing.delete()


DELETE: Mapping[str, Callable[[Any], None]] = {
    "project": _delete,
    "experiment": trashing.delete_experiment,
    "artifact": _delete_artifact,
    "runs": trashing.delete_for_good,
}


def _drop_unnamed_bytes() -> None:
    """Removes blobs that no artifact names. Row and file go under one lock: who stores the same bytes
    meanwhile waits.

    A fresh blob may belong to a step whose artifact a worker is about to write.
    """
    settled = Blob.objects.filter(created_at__lt=timezone.now() - SETTLED)
    named = Artifact.objects.filter(blob=OuterRef("pk"))
    for blob in settled.filter(~Exists(named)).select_for_update():
        default_storage.delete(blob.path)
        blob.delete()


@dataclass(frozen=True)
class Storage:
    """What a project keeps. Bytes that several artifacts share are counted once in each project."""

    project: Project
    artifacts: int
    file_bytes: int
    trash_bytes: int
    unfinished_bytes: int
    experiments: int
    runs: int

    @property
    def name(self) -> str:
        return f"{self.project} (in the trash)" if self.project.trashed_at else str(self.project)


def storage(team: Team) -> Iterator[Storage]:
    """What each project keeps, by as many queries for many projects as for one."""
    projects = list(team.projects.order_by("name"))
    own = Artifact.objects.filter(project__in=projects)
    artifacts, files = _count(own.filter(trashed_at=None)), _file_bytes(own)
    in_trash = _file_bytes(own.filter(trashed_at__isnull=False))
    unfinished = _sum(Upload.objects.filter(project__in=projects, artifact=None), Sum("received"))
    experiments = _count(Experiment.objects.filter(project__in=projects, trashed_at=None))
    runs = _count(Run.objects.filter(project__in=projects))
    every = (artifacts, files, in_trash, unfinished, experiments, runs)
    for project in projects:
        yield Storage(project, *(counted[project.pk] for counted in every))


def _count(rows: QuerySet[Any]) -> Counter[int]:
    return _sum(rows, Count("pk"))


def _sum(rows: QuerySet[Any], what: Aggregate) -> Counter[int]:
    """``what`` of each project's rows."""
    return Counter(dict(rows.order_by().values_list("project").annotate(what)))


def _file_bytes(artifacts: QuerySet[Artifact]) -> Counter[int]:
    """The bytes of each project's files, once where several of its artifacts share them."""
    found = Counter[int]()
    files = artifacts.exclude(blob=None).order_by().values_list("project", "blob", "blob__size")
    for project, _, size in files.distinct():
        found[project] += size
    return found
