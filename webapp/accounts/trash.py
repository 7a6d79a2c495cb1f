"""The trash of a team: what was put there, taking it back, and what there is besides.

A run outlives the artifact that it used: its outcome names the workload and the hash. ``deletion.py`` deletes
for good what lies there for long enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Aggregate, Count, Q, QuerySet, Sum
from django.http import Http404
from django.utils import timezone

from webapp.accounts.models import Deletion, Project, Team, User
from webapp.artifacts.models import Artifact, Upload
from webapp.runs import trashing
from webapp.runs.models import Experiment, Run, TrashedRuns

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
    """``size``: bytes that go with it; ``gone``: which share of its runs is deleted, once that has begun, and
    ``seconds_left`` how long the others take at that pace.
    """

    kind: str
    key: str
    name: str
    project: str
    trashed_at: datetime
    size: int = 0
    gone: float | None = None
    seconds_left: float | None = None

    @property
    def gone_at(self) -> datetime:
        """When it is deleted for good."""
        return self.trashed_at + timedelta(days=settings.TRASH_DAYS)


def list_trash(team: Team) -> list[Trashed]:
    """Newest first."""
    begun = {(one.kind, one.key): one for one in team.deletions.all()}
    found = [one for kind in KINDS for one in _list_kind(kind, team, begun)]
    return sorted(found, key=lambda one: one.trashed_at, reverse=True)


def _list_kind(kind: str, team: Team, deletions: Mapping[tuple[str, str], Deletion]) -> Iterator[Trashed]:
    begun = {key: one for (of, key), one in deletions.items() if of == kind}
    things = in_trash(kind, team)
    of_runs = trashing.bytes_of_runs(RUNS_BY[kind], things.exclude(pk__in=begun)) if kind in RUNS_BY else {}
    of_files = _bytes_of_files(kind, things)
    left = _count_runs(RUNS_BY[kind], list(begun)) if begun and kind in RUNS_BY else {}
    for thing in things:
        size = of_runs.get(thing.pk, 0) + of_files.get(thing.pk, 0)
        told = Trashed(kind, str(thing.pk), str(thing), str(_project(thing)), thing.trashed_at, size)
        yield _say_gone(told, begun[told.key], left.get(thing.pk, 0)) if told.key in begun else told


def _count_runs(by: str, keys: Sequence[str]) -> Mapping[Any, int]:
    rows = Run.everything.filter(**{f"{by}__in": keys}).order_by().values_list(by)
    return dict(rows.annotate(Count("pk")))


def _say_gone(told: Trashed, begun: Deletion, left: int) -> Trashed:
    """The thing while its runs, so many of which are left, are being deleted."""
    gone = 1 - left / begun.runs if begun.runs else 0.0
    passed = (timezone.now() - begun.began_at).total_seconds()
    return replace(told, gone=gone, seconds_left=passed * (1 - gone) / gone if gone > 0 else None)


def in_trash(kind: str, team: Team) -> QuerySet[Any]:
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


def find(team: Team, kind: str, key: str) -> Any:
    """The thing in the team's trash, or 404."""
    try:
        found = in_trash(kind, team).filter(pk=key).first() if kind in KINDS else None
    except (ValueError, ValidationError):
        found = None
    if found is None:
        raise Http404("nothing like it is in the trash of this team")
    return found


@transaction.atomic
def restore(team: Team, kind: str, key: str, by: User) -> str:
    """Takes it back and says so; ``ValidationError`` while its project is in the trash too."""
    found = find(team, kind, key)
    if kind != "project" and found.project.trashed_at is not None:
        raise ValidationError(
            f"{found} is of the project {found.project}, which is in the trash: restore that first"
        )
    if is_being_deleted(kind, found):
        raise ValidationError(f"{say_is(found)} being deleted for good")
    said = f"{say_is(found)} back"
    if isinstance(found, TrashedRuns):
        kept = f", tagged {trashing.KEPT} so that the project's rule leaves them there"
        said += kept if trashing.is_by_rule(found) else ""
        trashing.take_back(found, by)
    else:
        found.trashed_at = None
        found.save(update_fields=["trashed_at"])
    return f"{said}."


@transaction.atomic
def keep_runs(project: Project, days: int | None) -> None:
    """For how long the project keeps runs that nobody marked, beginning now; ``None``: for good."""
    project.keep_runs_days = days
    project.save(update_fields=["keep_runs_days"])
    trashing.keep_no_longer(project, timezone.now())


def is_being_deleted(kind: str, thing: Any) -> bool:
    """Whether some of its runs may be gone already; a thing in a project that is being deleted is, too."""
    asked = Q(kind=kind, key=str(thing.pk))
    if kind != "project":
        asked |= Q(kind="project", key=str(thing.project_id))
    return Deletion.objects.filter(asked).exists()


def say_is(thing: Any) -> str:
    return trashing.say_are(thing) if isinstance(thing, TrashedRuns) else f"{thing} is"


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
